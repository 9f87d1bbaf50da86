/* The resident set's high mark of buffers that grow and of large blocks that come and go, against what was touched of
   those that live. Growth up to `START` is the heap's own matter: blocks from there on are mapped on their own. */
#include "check.h"

#define MIB ((size_t)1 << 20)
#define START (5 * MIB)

static size_t live, peak;

static size_t kib(const char *name) {
    char line[256];
    size_t value = 0, length = strlen(name);
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, length)) value = strtoul(line + length, NULL, 10);
    fclose(file);
    return value;
}

static void touch(volatile char *block, size_t from, size_t to) {
    for (size_t at = from; at < to; at += 4096) block[at] = 1;
    live += to - from;
    if (live > peak) peak = live;
}

static char *filled(size_t size) {
    char *block = malloc(size);
    CHECK(block);
    touch(block, 0, size);
    return block;
}

static void drop(char *block, size_t size) {
    free(block);
    live -= size;
}

/* As std::vector does: a new one, what there is copied, the old one freed, the rest filled. */
static void grow(int buffers, size_t most, size_t numerator, size_t denominator) {
    char *block[8];
    size_t size = START;
    for (int i = 0; i < buffers; i++) block[i] = filled(size);
    while (size < most) {
        size_t next = size * numerator / denominator;
        for (int i = 0; i < buffers; i++) {
            char *new = malloc(next);
            CHECK(new);
            memcpy(new, block[i], size);
            touch(new, 0, size);
            drop(block[i], size);
            touch(new, size, next);
            block[i] = new;
        }
        size = next;
    }
    for (int i = 0; i < buffers; i++) drop(block[i], size);
}

static void bursts(void) {
    static const struct { int count; size_t size; } burst[] = {{12, 6}, {8, 9}, {6, 12}, {1, 72}, {12, 6}, {9, 8}};
    char *block[12];
    for (size_t b = 0; b < sizeof burst / sizeof *burst; b++) {
        for (int i = 0; i < burst[b].count; i++) block[i] = filled(burst[b].size * MIB);
        for (int i = 0; i < burst[b].count; i++) drop(block[i], burst[b].size * MIB);
    }
}

int main(int count, char **argument) {
    CHECK(count == 2);
    const char *what = argument[1];
    size_t before = kib("VmRSS:") * 1024;
    if (!strcmp(what, "doubling")) grow(1, 64 * MIB, 2, 1);
    else if (!strcmp(what, "doubling-in-turn")) grow(3, 32 * MIB, 2, 1);
    else if (!strcmp(what, "eighths-in-turn")) grow(3, 32 * MIB, 9, 8);
    else if (!strcmp(what, "bursts")) bursts();
    else if (!strcmp(what, "beside-a-sparse-table")) CHECK(malloc(1024 * MIB)), grow(1, 64 * MIB, 2, 1);
    else CHECK(!"a name");
    size_t high = kib("VmHWM:") * 1024 - before;
    printf("%s: %zu MiB at the peak for %zu\n", what, high / MIB, peak / MIB);
    fflush(stdout);
    /* What the library itself holds is far below the 4 MiB, also where it is not optimised. */
    CHECK(high <= peak + peak * 3 / 20 + 4 * MIB);
    return 0;
}
