/* Leaks and frees memory, at lines that the test knows by their marks. It is told how much by its standard input: a line of
 * text leaks a MiB, the end of it ends the program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *volatile kept;

__attribute__((noinline)) void *leak_one(size_t size) {
    void *block = malloc(size); /* LEAK */
    memset(block, 1, size);
    return block;
}

static inline __attribute__((always_inline)) void *through(size_t size) {
    return leak_one(size); /* INLINED */
}

__attribute__((noinline)) void work(void) {
    for (int i = 0; i < 64; i++) {
        kept = through(16 << 10); /* CALL */
        void *block = malloc(16 << 10); /* FREED */
        memset(block, 2, 16 << 10);
        kept = block;
        free(block);
    }
}

int main(void) {
    char line[100];
    /* The background thread, which listens for `weir profile`, starts when a heap of some size frees. */
    static void *block[1024];
    for (int i = 0; i < 1024; i++) memset(block[i] = malloc(32 << 10), 3, 32 << 10);
    for (int i = 0; i < 1024; i++) free(block[i]);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        work();
        puts("done");
        fflush(stdout);
    }
    return 0;
}
