/* Every function of the malloc family: what it returns, what it refuses, and what happens to errno. */
#include "check.h"
#include <stdint.h>

static const size_t too_big[] = {(size_t)PTRDIFF_MAX + 1, SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4095, SIZE_MAX / 2 + 4096};
#define TOO_BIG (sizeof too_big / sizeof *too_big)
#define REFUSED(call, code) do { errno = 0; CHECK((call) == NULL); CHECK(errno == (code)); } while (0)

static void sizes(void) {
    for (size_t size = 0; size < 70000; size += size < 2100 ? 1 : 517) {
        errno = 77;
        unsigned char *p = malloc(size), *q = malloc(size);
        CHECK(p && q && p != q && aligned(p, 16) && aligned(q, 16));
        CHECK(malloc_usable_size(p) >= size);
        CHECK(size == 0 || (p + size <= q || q + size <= p));
        fill(p, malloc_usable_size(p), size);
        fill(q, malloc_usable_size(q), size + 1);
        CHECK(holds(p, malloc_usable_size(p), size) && holds(q, malloc_usable_size(q), size + 1));
        free(p);
        CHECK(holds(q, malloc_usable_size(q), size + 1));
        free(q);
        CHECK(errno == 77);
    }
    for (int shift = 10; shift <= 28; shift++) {
        size_t size = ((size_t)1 << shift) + shift - 14;
        unsigned char *p = malloc(size);
        CHECK(p && aligned(p, 16) && malloc_usable_size(p) >= size);
        p[0] = p[size / 2] = p[size - 1] = 1;
        errno = 77;
        free(p);
        CHECK(errno == 77);
    }
    /* Blocks of no bytes are different from each other. */
    void *empty[100];
    for (int i = 0; i < 100; i++) {
        CHECK((empty[i] = malloc(0)) != NULL);
        for (int j = 0; j < i; j++) CHECK(empty[i] != empty[j]);
    }
    for (int i = 0; i < 100; i++) free(empty[i]);
    free(NULL);
    CHECK(malloc_usable_size(NULL) == 0);
    for (size_t i = 0; i < TOO_BIG; i++) REFUSED(malloc(too_big[i]), ENOMEM);
}

static void callocs(void) {
    errno = 77;
    unsigned char *p = calloc(13, 77);
    CHECK(p && all_zero(p, 13 * 77) && errno == 77);
    free(p);
    CHECK((p = calloc(0, 8)) != NULL), free(p);
    CHECK((p = calloc(8, 0)) != NULL), free(p);
    CHECK((p = calloc(SIZE_MAX, 0)) != NULL), free(p);
    REFUSED(calloc(SIZE_MAX, 2), ENOMEM);
    REFUSED(calloc(2, SIZE_MAX), ENOMEM);
    REFUSED(calloc((size_t)1 << 32, (size_t)1 << 32), ENOMEM);
    REFUSED(calloc(((size_t)1 << 32) + 1, (size_t)1 << 32), ENOMEM);
    REFUSED(calloc(1, (size_t)PTRDIFF_MAX + 1), ENOMEM);
}

static void reallocs(void) {
    errno = 77;
    void *p = realloc(NULL, 100);
    CHECK(p);
    fill(p, 100, 5);
    CHECK((p = realloc(p, 5000)) && holds(p, 100, 5));
    CHECK((p = realloc(p, 50)) && holds(p, 50, 5));
    CHECK(errno == 77);
    for (size_t i = 0; i < TOO_BIG; i++) REFUSED(realloc(p, too_big[i]), ENOMEM);
    CHECK(holds(p, 50, 5)); /* what could not grow is still there */
    errno = 77;
    CHECK(realloc(p, 0) == NULL && errno == 77);
    CHECK((p = realloc(NULL, 0)) != NULL);
    free(p);
    CHECK((p = reallocarray(NULL, 10, 10)) != NULL);
    fill(p, 100, 6);
    CHECK((p = reallocarray(p, 100, 100)) && holds(p, 100, 6));
    REFUSED(reallocarray(p, SIZE_MAX, 2), ENOMEM);
    REFUSED(reallocarray(p, (size_t)1 << 33, (size_t)1 << 33), ENOMEM);
    CHECK(holds(p, 100, 6));
    CHECK(reallocarray(p, 0, 8) == NULL);
}

static void alignments(void) {
    for (size_t align = 1; align <= 65536; align *= 2)
        for (size_t size = 0; size < 3 * align + 40; size += 1 + size / 3) {
            void *p = aligned_alloc(align, size), *q = memalign(align, size), *r = (void *)1;
            CHECK(p && q && aligned(p, align) && aligned(q, align) && aligned(p, 16));
            CHECK(malloc_usable_size(p) >= size && malloc_usable_size(q) >= size);
            fill(p, size, 1), fill(q, size, 2);
            errno = 77;
            int code = posix_memalign(&r, align, size);
            CHECK(errno == 77);
            if (align < sizeof(void *)) CHECK(code == EINVAL && r == (void *)1);
            else {
                CHECK(code == 0 && aligned(r, align) && malloc_usable_size(r) >= size);
                fill(r, size, 3);
                CHECK(holds(p, size, 1) && holds(q, size, 2));
                free(r);
            }
            free(p), free(q);
        }
}

static void bad_alignments(void) {
    void *p = (void *)1;
    if (is_weir()) { /* glibc has refused these since 2.38 */
        REFUSED(aligned_alloc(0, 16), EINVAL);
        REFUSED(aligned_alloc(3, 16), EINVAL);
        REFUSED(aligned_alloc(48, 16), EINVAL);
        REFUSED(aligned_alloc(SIZE_MAX, 16), EINVAL);
    }
    REFUSED(aligned_alloc(16, SIZE_MAX), ENOMEM);
    REFUSED(aligned_alloc(4096, (size_t)PTRDIFF_MAX - 100), ENOMEM);
    REFUSED(aligned_alloc((size_t)1 << 62, (size_t)1 << 62), ENOMEM);
    REFUSED(memalign(4096, SIZE_MAX - 4096), ENOMEM);
    REFUSED(memalign(SIZE_MAX, 16), EINVAL);
    CHECK((p = memalign(48, 100)) && aligned(p, 64)); /* rounded up, as in glibc */
    free(p);
    errno = 77;
    p = (void *)1;
    CHECK(posix_memalign(&p, 0, 16) == EINVAL && p == (void *)1);
    CHECK(posix_memalign(&p, 24, 16) == EINVAL && p == (void *)1);
    CHECK(posix_memalign(&p, 4, 16) == EINVAL && p == (void *)1);
    CHECK(errno == 77);
    CHECK(posix_memalign(&p, 4096, SIZE_MAX) == ENOMEM && p == (void *)1);
    CHECK(posix_memalign(&p, 64, (size_t)PTRDIFF_MAX + 1) == ENOMEM && p == (void *)1);
    CHECK(errno == ENOMEM); /* the standard leaves it open, and glibc does */
    CHECK((p = valloc(1)) && aligned(p, 4096)), free(p);
    CHECK((p = valloc(0)) && aligned(p, 4096)), free(p);
    CHECK((p = pvalloc(1)) && aligned(p, 4096) && malloc_usable_size(p) >= 4096), free(p);
    CHECK((p = pvalloc(4097)) && aligned(p, 4096) && malloc_usable_size(p) >= 8192), free(p);
    REFUSED(pvalloc(SIZE_MAX), ENOMEM);
    REFUSED(valloc(SIZE_MAX), ENOMEM);
}

/* The C23 forms and cfree are not in every libc: found at run time, and obligatory in Weir. */
static void other_frees(void) {
    void (*cfree)(void *) = dlsym(RTLD_DEFAULT, "cfree");
    void (*sized)(void *, size_t) = dlsym(RTLD_DEFAULT, "free_sized");
    void (*aligned_sized)(void *, size_t, size_t) = dlsym(RTLD_DEFAULT, "free_aligned_sized");
    if (!is_weir()) return;
    CHECK(cfree && sized && aligned_sized);
    errno = 77;
    for (int round = 0; round < 2000; round++) {
        cfree(malloc(round));
        sized(malloc(round), round);
        sized(malloc(round), 1000000); /* a lie, not believed */
        aligned_sized(aligned_alloc(256, round), 256, round);
        aligned_sized(malloc(round), 8, 5);
    }
    cfree(NULL), sized(NULL, 5), aligned_sized(NULL, 8, 5);
    CHECK(errno == 77);
}

int main(void) {
    sizes();
    callocs();
    reallocs();
    alignments();
    bad_alignments();
    other_frees();
    return 0;
}
