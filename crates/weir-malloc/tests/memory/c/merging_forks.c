/* Pages that a child has too are not filled to be merged: that would copy each. Those that came after the fork are. */
#include "check.h"
#include "weir.h"

#include <fcntl.h>
#include <signal.h>

enum { COUNT = 60000 };
static char *before[COUNT], *after[COUNT];

static size_t merging(void) {
    char text[32] = {0};
    int fd = open("/proc/self/ksm_merging_pages", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    return strtoull(text, NULL, 10);
}

/* Blocks of which one in 16 is left at random. */
static void thin(char **block, size_t size, uint64_t *random) {
    for (int i = 0; i < COUNT; i++) CHECK(block[i] = malloc(size)), memset(block[i], i, size);
    for (int i = 0; i < COUNT; i++)
        if (next_random(random) % 16) free(block[i]), block[i] = NULL;
}

/* Different pages that blocks lie on. Blocks are in order of their addresses, nearly. */
static size_t pages(char **block) {
    size_t count = 0;
    uintptr_t last = 0;
    for (int i = 0; i < COUNT; i++) {
        uintptr_t page = (uintptr_t)block[i] >> 12;
        if (block[i] && page != last) count++, last = page;
    }
    return count;
}

static void check(char **block, size_t size) {
    for (int i = 0; i < COUNT; i++)
        for (size_t at = 0; block[i] && at < size; at++) CHECK(block[i][at] == (char)i);
}

int main(void) {
    alarm(LIFETIME);
    uint64_t random = 88172645463325252u;
    thin(before, 256, &random);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        for (;;) pause();
    thin(after, 512, &random);
    size_t of_parent = pages(after);
    WAIT_FOR(merging() > of_parent / 2);
    /* The kernel goes on until nothing is left. */
    volatile size_t last = 0;
    WAIT_FOR(last == merging() || (last = merging(), sleep(1), 0));
    CHECK(merging() < of_parent + pages(before) / 4);
    check(before, 256);
    check(after, 512);
    int status;
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    return 0;
}
