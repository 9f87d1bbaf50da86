/* Under a limited address space: NULL and ENOMEM at the end, nothing lost, and all is well afterwards. */
#include "check.h"
#include <sys/resource.h>

static size_t exhaust(size_t size) {
    void **list = NULL, **block;
    size_t count = 0;
    errno = 0;
    while ((block = malloc(size))) {
        fill(block + 1, 48, (uintptr_t)block);
        *block = list, list = (void **)block, count++;
    }
    CHECK(errno == ENOMEM);
    void *p = (void *)1;
    errno = 77;
    if (size > 100000) CHECK(posix_memalign(&p, 64, size) == ENOMEM && p == (void *)1 && errno == ENOMEM);
    while (list) {
        block = list, list = *block;
        CHECK(holds(block + 1, 48, (uintptr_t)block));
        free(block);
    }
    return count;
}

int main(void) {
    alarm(LIFETIME);
    struct rlimit limit = {400u << 20, 400u << 20};
    if (getenv("TIGHT")) CHECK(setrlimit(RLIMIT_AS, &limit) == 0); /* set now, after the heap chose its region */
    static const size_t sizes[] = {20 << 20, 300000, 5000, 700, 1 << 20, 400};
    for (int i = 0; i < 6; i++) {
        size_t first = exhaust(sizes[i]), second = exhaust(sizes[i]);
        CHECK(first * sizes[i] > 100u << 20);
        /* What was freed can be had again. */
        CHECK(second * 10 >= first * 9);
    }
    /* A realloc that cannot grow leaves the block. */
    unsigned char *p = malloc(1000);
    fill(p, 1000, 3);
    errno = 0;
    CHECK(realloc(p, (size_t)1 << 40) == NULL && errno == ENOMEM && holds(p, 1000, 3));
    free(p);
    return 0;
}
