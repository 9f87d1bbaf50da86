/* Prints what the malloc family answers, errno after it included: the same under any library that answers as glibc does.
   Left out is what glibc itself changed: aligned_alloc of what is no power of two. */
#include "check.h"
#include <limits.h>

#define EXBI ((size_t)1 << 60)
static void *other = &other;

static void *posix(size_t align, size_t size) {
    void *out = other;
    errno = 77;
    int code = posix_memalign(&out, align, size), after = errno;
    printf("%d %s ", code, out == other ? "kept" : "written");
    errno = after;
    return out == other ? NULL : out;
}

#define ASK(call) do { \
    errno = 77; \
    void *block = (call); \
    int code = errno; \
    printf("%s: %s %d\n", #call, block ? "block" : "null", code); \
    errno = 77; \
    free(block); \
    CHECK(errno == 77); \
} while (0)

int main(void) {
    static const size_t sizes[] = {0, 1, 100, 5000, 300000, 5 << 20, (size_t)1 << 47, EXBI, PTRDIFF_MAX - 4096, PTRDIFF_MAX,
                                   (size_t)PTRDIFF_MAX + 1, SIZE_MAX / 2 + 4096, SIZE_MAX - 8192, SIZE_MAX - 4095, SIZE_MAX};
    static const size_t aligns[] = {0, 1, 2, 3, 4, 8, 12, 16, 24, 48, 64, 4096, 12288, 1 << 22, (size_t)1 << 62,
                                    (size_t)1 << 63, ((size_t)1 << 63) + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i];
        printf("size %zu\n", size);
        ASK(malloc(size));
        ASK(calloc(1, size));
        ASK(calloc(size, 2));
        ASK(realloc(NULL, size));
        ASK(reallocarray(NULL, size, 2));
        ASK(valloc(size));
        ASK(pvalloc(size));
        char *block = malloc(50);
        fill(block, 50, 9);
        errno = 77;
        char *moved = realloc(block, size);
        int code = errno;
        printf("realloc: %s %d\n", moved ? "block" : "null", code);
        if (moved || size > 0) CHECK(holds(moved ? moved : block, size > 0 && size < 50 ? size : 50, 9));
        if (moved) block = moved;
        if (moved || size > 0) free(block);
        for (size_t j = 0; j < sizeof aligns / sizeof *aligns; j++) {
            size_t align = aligns[j];
            printf("align %zu ", align);
            ASK(memalign(align, size));
            ASK(posix(align, size));
            if (align && (align & (align - 1)) == 0) ASK(aligned_alloc(align, size));
        }
    }
    ASK(NULL);
    printf("%zu %d\n", malloc_usable_size(NULL), malloc_info(1, stdout));
    printf("%d%d%d%d\n", mallopt(M_ARENA_MAX, 1), mallopt(M_MXFAST, 64), mallopt(M_MXFAST, 161), mallopt(M_TRIM_THRESHOLD, 1));
    return 0;
}
