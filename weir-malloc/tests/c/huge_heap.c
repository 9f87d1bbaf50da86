/* Which part of a heap is in huge pages, as the setting huge_heap says: a part filled with it, one without, one with it. */
#include "check.h"

#define SIZE 4000
#define PART (48 << 20)

/* Of the program, KiB. */
static long huge_kib(void) {
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, "AnonHugePages:", 14)) kib = strtol(line + 14, NULL, 10);
    fclose(file);
    return kib;
}

static void fill_part(void) {
    for (size_t i = 0; i < PART / SIZE; i++) {
        char *block = malloc(SIZE);
        CHECK(block);
        memset(block, 1, SIZE);
    }
}

static void set(uint64_t value) {
    typedef int (*ctl)(const char *, void *, size_t *, const void *, size_t);
    ctl weir_ctl = (ctl)dlsym(RTLD_DEFAULT, "weir_ctl");
    CHECK(weir_ctl);
    CHECK(weir_ctl("huge_heap", NULL, NULL, &value, sizeof value) == 0);
}

int main(void) {
    long parts[4] = {huge_kib()};
    for (int i = 1; i < 4; i++) {
        if (i > 1) set(i == 3);
        fill_part();
        parts[i] = huge_kib();
    }
    printf("%ld %ld %ld\n", parts[1] - parts[0], parts[2] - parts[1], parts[3] - parts[2]);
    return 0;
}
