/* Idle memory of processes that do next to nothing is released: `block`, one large block of a small process; `end`, what is cut
   off such blocks; and `child`, what a parent freed before it forked. */
#include "check.h"

#define MIB ((size_t)1 << 20)
#define PARTS (96 * 1024)

static char *volatile block;

static void block_of_a_small_process(void) {
    size_t before = resident_bytes();
    block = malloc(30 * MIB);
    CHECK(block);
    memset(block, 1, 30 * MIB);
    free(block);
    WAIT_FOR(resident_bytes() < before + 8 * MIB);
}

static void ends_of_blocks(void) {
    enum { COUNT = 8 };
    char *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc(32 * MIB);
        CHECK(blocks[i]);
        memset(blocks[i], 1, 32 * MIB);
    }
    size_t before = resident_bytes();
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = realloc(blocks[i], 29 * MIB);
        CHECK(blocks[i] && blocks[i][29 * MIB - 1] == 1);
    }
    CHECK(resident_bytes() < before - (COUNT * 5 / 2) * MIB);
    for (int i = 0; i < COUNT; i++) free(blocks[i]);
}

/* The child starts with a copy of what is idle, and of no thread. */
static void child(void) {
    static char *parts[PARTS];
    size_t before = resident_bytes();
    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = malloc(1000);
        CHECK(parts[i]);
        memset(parts[i], 1, 1000);
    }
    for (size_t i = 0; i < PARTS; i++) free(parts[i]);
    pid_t pid = fork();
    if (pid != 0) {
        CHECK(ends_well(pid));
        return;
    }
    CHECK(resident_bytes() > before + 32 * MIB);
    /* Some little work, as a worker does. */
    for (int i = 0; i < 1000; i++) parts[i] = malloc(i);
    for (int i = 0; i < 1000; i++) free(parts[i]);
    WAIT_FOR(resident_bytes() < before + 16 * MIB);
    _exit(0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    if (!strcmp(argv[1], "block")) block_of_a_small_process();
    else if (!strcmp(argv[1], "end")) ends_of_blocks();
    else child();
    return 0;
}
