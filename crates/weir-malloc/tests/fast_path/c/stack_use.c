/* How much stack malloc, free and realloc use: argv[1] says on which path. Runs it on a painted stack; prints the bytes. */
#include "check.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

enum { STACK = 256 << 10, COUNT = 4000 };
static ucontext_t back, inside;
static void *block[COUNT];

static void fill_and_free(size_t least, size_t most, int count, int pause_ms) {
    int n = 0;
    uint64_t random = 88172645463325252u;
    while (n < count && (block[n] = malloc(least + next_random(&random) % (most - least)))) *(char *)block[n++] = 1;
    while (n > 0) free(block[--n]);
    if (pause_ms) usleep(pause_ms * 1000);
}

static void objects(void) { for (int i = 0; i < 10; i++) fill_and_free(1, 20000, COUNT, 40); }
static void runs(void) { for (int i = 0; i < 10; i++) fill_and_free(33000, 4 << 20, 100, 40); }
static void mapped(void) {
    for (int i = 0; i < 10; i++) fill_and_free(5 << 20, 20 << 20, 10, 40);
    for (int i = 0; i < 20; i++) free(calloc(1, 5000000 + i * 1000000));
}

static void grown(void) {
    for (int i = 0; i < 5; i++) {
        void *p = malloc(100);
        for (size_t size = 100; size < 40 << 20; size += size / 7) CHECK((p = realloc(p, size))), *(char *)p = 1;
        for (size_t size = 40 << 20; size > 100; size -= size / 5) CHECK((p = realloc(p, size)));
        free(p);
        usleep(40000);
    }
}

/* The system maps no more. */
static void limited(void) {
    struct rlimit limit = {300 << 20, 300 << 20};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    fill_and_free(100000, 1 << 20, COUNT, 0);
    fill_and_free(5 << 20, 6 << 20, COUNT, 0);
    fill_and_free(1, 20000, COUNT, 0);
}

/* The heap's own limit is reached: set by the environment. */
static void hard(void) {
    for (int i = 0; i < 3; i++) fill_and_free(1, 200000, COUNT, 0), fill_and_free(5 << 20, 6 << 20, COUNT, 0);
}

static void trimmed(void) {
    for (int i = 0; i < 5; i++) objects(), runs(), mapped(), malloc_trim(0);
}

static const struct { const char *name; void (*run)(void); } paths[] = {
    {"objects", objects}, {"runs", runs}, {"mapped", mapped}, {"grown", grown}, {"limited", limited}, {"hard", hard}, {"trimmed", trimmed}};
static void (*chosen)(void);
static void work(void) { chosen(); }

int main(int count, char **argv) {
    alarm(250);
    CHECK(count == 2);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strcmp(argv[1], paths[i].name) == 0) chosen = paths[i].run;
    CHECK(chosen);
    unsigned char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    memset(stack, 0xaa, STACK);
    CHECK(getcontext(&inside) == 0);
    inside.uc_stack.ss_sp = stack, inside.uc_stack.ss_size = STACK, inside.uc_link = &back;
    makecontext(&inside, work, 0);
    CHECK(swapcontext(&back, &inside) == 0);
    size_t unused = 0;
    while (unused < STACK && stack[unused] == 0xaa) unused++;
    printf("%zu\n", STACK - unused);
    return 0;
}
