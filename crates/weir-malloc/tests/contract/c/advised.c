/* Blocks of more than 4 MiB on a part of which the program gave the kernel advice. */
#include "check.h"
#include <sys/mman.h>

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)

enum advice { HUGE, NOT_FORKED, WIPED_ON_FORK, LOCKED, UNREADABLE_AGES_AGO, ADVICES };

/* Gives advice on a part of a block, as programs do: NumPy asks for huge pages behind all but a block's first bytes. */
static void advise(enum advice advice, char *block, size_t len) {
    char *inside = (char *)(((uintptr_t)block + 10 * PAGE) & ~(PAGE - 1));
    switch (advice) {
    case HUGE: madvise((char *)(((uintptr_t)block + PAGE) & ~(PAGE - 1)), len - 2 * PAGE, MADV_HUGEPAGE); break;
    case NOT_FORKED: CHECK(madvise(inside, PAGE, MADV_DONTFORK) == 0); break;
    case WIPED_ON_FORK: CHECK(madvise(inside, len / 2, 18 /* MADV_WIPEONFORK */) == 0); break;
    case LOCKED: (void)mlock(inside, PAGE); break; /* the limit may be 0 */
    default:
        CHECK(mprotect(inside, PAGE, PROT_READ) == 0);
        madvise(inside, PAGE, MADV_NOHUGEPAGE);
        CHECK(mprotect(inside, PAGE, PROT_READ | PROT_WRITE) == 0);
    }
}

static void resized(enum advice advice, size_t from, size_t to) {
    char *block = malloc(from);
    CHECK(block != NULL);
    fill(block, from, advice);
    advise(advice, block, from);
    char *moved = realloc(block, to);
    CHECK(moved != NULL);
    CHECK(malloc_usable_size(moved) >= to);
    CHECK(holds(moved, from < to ? from : to, advice));
    fill(moved, to, advice + 1);
    CHECK(holds(moved, to, advice + 1));
    free(moved);
}

/* What is refused leaves the block as it was. */
static void refused(enum advice advice) {
    size_t len = 8 * MIB;
    char *block = malloc(len);
    CHECK(block != NULL);
    fill(block, len, advice);
    advise(advice, block, len);
    errno = 0;
    CHECK(realloc(block, (size_t)1 << 47) == NULL && errno == ENOMEM);
    CHECK(holds(block, len, advice));
    char *less = realloc(block, 5 * MIB);
    CHECK(less != NULL && holds(less, 5 * MIB, advice));
    free(less);
}

/* A child sees what its parent wrote into a block, whoever had it before. */
static void forked(enum advice advice, size_t before, size_t after) {
    char *block = malloc(before);
    CHECK(block != NULL);
    memset(block, 1, before);
    char *pages = (char *)(((uintptr_t)block + PAGE - 1) & ~(PAGE - 1));
    CHECK(madvise(pages, before - 2 * PAGE, advice == NOT_FORKED ? MADV_DONTFORK : 18) == 0);
    free(block);
    block = malloc(after);
    CHECK(block != NULL);
    fill(block, after, 7);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(holds(block, after, 7) ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    free(block);
}

/* A child lacks a block that its parent had freed with such advice on it, and gets others. */
static void freed_before_fork(void) {
    char *block = malloc(8 * MIB);
    CHECK(block != NULL);
    memset(block, 1, 8 * MIB);
    char *pages = (char *)(((uintptr_t)block + PAGE - 1) & ~(PAGE - 1));
    CHECK(madvise(pages, 8 * MIB - 2 * PAGE, MADV_DONTFORK) == 0);
    free(block);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(block = malloc(8 * MIB));
        fill(block, 8 * MIB, 3);
        _exit(holds(block, 8 * MIB, 3) ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

int main(void) {
    for (int advice = 0; advice < ADVICES; advice++) {
        resized(advice, 8 * MIB, 16 * MIB);
        resized(advice, 8 * MIB, 8 * MIB + PAGE);
        resized(advice, 16 * MIB, 5 * MIB);
        resized(advice, 8 * MIB, 100 * 1024);
        refused(advice);
    }
    /* Other allocators may hand such memory out again; the rule is the program's to keep. */
    if (is_weir()) {
        freed_before_fork();
        for (int advice = NOT_FORKED; advice <= WIPED_ON_FORK; advice++) {
            forked(advice, 8 * MIB, 8 * MIB);
            forked(advice, 8 * MIB, 11 * MIB);
            forked(advice, 16 * MIB, 5 * MIB);
        }
    }
    return 0;
}
