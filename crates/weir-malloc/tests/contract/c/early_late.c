/* Allocation before main and after it. */
#include "check.h"

static void *before[4];
static void keep(int i) {
    CHECK(before[i] = malloc(1000 + i));
    fill(before[i], 1000 + i, i);
    free(calloc(10, 10));
}
static void at_preinit(int argc, char **argv, char **envp) { keep(0); }
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = at_preinit;
__attribute__((constructor(101))) static void first(void) { keep(1), setenv("MADE_BEFORE_MAIN", "a long enough value", 1); }
__attribute__((constructor)) static void later(void) { keep(2); }

static void at_exit(void) {
    for (int i = 0; i < 3; i++) CHECK(holds(before[i], 1000 + i, i));
    free(before[1]);
    free(malloc(200000));
}
static void nothing(void) { free(malloc(64)); }
__attribute__((destructor(101))) static void last(void) {
    CHECK(holds(before[2], 1002, 2));
    free(before[2]);
    free(realloc(malloc(10), 5000));
    dprintf(1, "the end\n");
}

int main(void) {
    keep(3);
    free(before[3]);
    CHECK(strcmp(getenv("MADE_BEFORE_MAIN"), "a long enough value") == 0);
    unsetenv("MADE_BEFORE_MAIN");
    CHECK(atexit(at_exit) == 0);
    for (int i = 0; i < 100; i++) CHECK(atexit(nothing) == 0); /* more than fit in libc's own table */
    free(before[0]);
    CHECK((before[0] = malloc(1000)) != NULL);
    fill(before[0], 1000, 0);
    setvbuf(stdout, NULL, _IOFBF, 100000);
    printf("buffered\n");
    return 0;
}
