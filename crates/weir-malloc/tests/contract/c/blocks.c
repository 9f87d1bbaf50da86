/* Contents: zeroes where promised, bytes kept where promised, at every size; and big alignments. */
#include "check.h"

/* calloc's zeroes, in memory that was dirty a moment ago, over the whole usable size. */
static void zeroes(int trim) {
    enum { COUNT = 400 };
    static unsigned char *block[COUNT];
    static const size_t sizes[] = {1, 16, 48, 100, 256, 1000, 4096, 5000, 16384, 70000, 262144, 1 << 20, 3 << 20};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t size = sizes[s];
        int count = size > 100000 ? 8 : COUNT;
        for (int round = 0; round < 4; round++) {
            for (int i = 0; i < count; i++) {
                CHECK(block[i] = calloc(1, size));
                CHECK(all_zero(block[i], malloc_usable_size(block[i])));
                memset(block[i], 0xff, malloc_usable_size(block[i]));
            }
            for (int i = 0; i < count; i++) free(block[i ^ (round & 1)]);
            if (trim) malloc_trim(0);
        }
    }
}

/* realloc's contents, up and down between 1 byte and 20 MiB, and beside blocks that must not be hurt. */
static void moves(void) {
    unsigned char *p = malloc(1), *beside[64];
    size_t size = 1;
    fill(p, 1, 9);
    for (int i = 0; i < 64; i++) fill(beside[i] = malloc(64 + i * 512), 64 + i * 512, i);
    for (size_t next = 1; next <= 20u << 20; next += 1 + next / 7) {
        CHECK(p = realloc(p, next));
        CHECK(holds(p, size, 9) && malloc_usable_size(p) >= next);
        fill(p, next, 9);
        size = next;
    }
    for (size_t next = size; next > 0; next -= 1 + next / 6) {
        CHECK((p = realloc(p, next)) && holds(p, next, 9));
    }
    free(p);
    /* at random, many at once */
    enum { COUNT = 200 };
    static unsigned char *block[COUNT];
    static size_t length[COUNT];
    uint64_t random = 42;
    for (int round = 0; round < 20000; round++) {
        int i = next_random(&random) % COUNT;
        size_t next = 1 + next_random(&random) % ((size_t)1 << (4 + next_random(&random) % 14));
        unsigned char *moved = realloc(block[i], next);
        CHECK(moved && holds(moved, length[i] < next ? length[i] : next, i));
        fill(moved, next, i);
        block[i] = moved, length[i] = next;
    }
    for (int i = 0; i < COUNT; i++) CHECK(holds(block[i], length[i], i)), free(block[i]);
    for (int i = 0; i < 64; i++) CHECK(holds(beside[i], 64 + i * 512, i)), free(beside[i]);
}

/* realloc to no bytes, as the C library has it: glibc frees the block, musl gives one of no bytes. */
static void to_nothing(void) {
    char *p = realloc(malloc(50), 0), *q = reallocarray(malloc(5000), 0, 8);
#ifdef __GLIBC__
    CHECK(!p && !q);
#else
    CHECK(p && q);
#endif
    free(p), free(q);
}

static void big_alignments(void) {
    for (size_t align = 4096; align <= (size_t)16 << 20; align *= 2) {
        void *block[6];
        static const size_t sizes[] = {0, 1, 4096, 100000, 5 << 20, 17};
        for (int i = 0; i < 6; i++) {
            CHECK(posix_memalign(&block[i], align, sizes[i]) == 0);
            CHECK(aligned(block[i], align) && malloc_usable_size(block[i]) >= sizes[i]);
            fill(block[i], sizes[i], align + i);
        }
        for (int i = 0; i < 6; i++) CHECK(holds(block[i], sizes[i], align + i));
        /* an aligned block may be reallocated; the alignment need not survive, the contents must */
        CHECK((block[3] = realloc(block[3], 300000)) && holds(block[3], 100000, align + 3));
        for (int i = 0; i < 6; i++) free(block[i]);
    }
}

/* All of what malloc_usable_size says may be written, of many blocks at once. */
static void usable(void) {
    enum { COUNT = 3000 };
    static void *block[COUNT];
    for (int i = 0; i < COUNT; i++) {
        CHECK(block[i] = malloc(i * 7 + 1));
        size_t size = malloc_usable_size(block[i]);
        CHECK(size >= (size_t)i * 7 + 1);
        fill(block[i], size, i);
    }
    for (int i = 0; i < COUNT; i++) CHECK(holds(block[i], malloc_usable_size(block[i]), i));
    for (int i = 0; i < COUNT; i++) free(block[i]);
}

int main(void) {
    zeroes(0);
    zeroes(1);
    moves();
    to_nothing();
    big_alignments();
    usable();
    return 0;
}
