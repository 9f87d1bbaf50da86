/* A program that has the functions of ISO C by itself, as one that links an allocator statically: what libc has beside them goes
   to the program's, as in glibc. */
#include "check.h"

static _Alignas(16) char memory[16 << 20];
static size_t used;

static int is_own(const void *block) { return (uintptr_t)block - (uintptr_t)memory < sizeof memory; }

void *malloc(size_t size) {
    if (size > sizeof memory - used - 16) return NULL;
    char *block = memory + __atomic_fetch_add(&used, (size + 31) & ~(size_t)15, __ATOMIC_RELAXED) + 16;
    memcpy(block - 16, &size, sizeof size);
    return block;
}
static int frees;
void free(void *block) { CHECK(!block || is_own(block)), frees++; }
void *calloc(size_t count, size_t size) {
    void *block = malloc(count * size);
    return block ? memset(block, 0, count * size) : NULL;
}
void *realloc(void *block, size_t size) {
    void *larger = malloc(size);
    if (!block || !larger) return larger;
    CHECK(is_own(block));
    size_t old;
    memcpy(&old, (char *)block - 16, sizeof old);
    return memcpy(larger, block, old < size ? old : size);
}

int main(void) {
    char *text = malloc(6);
    strcpy(text, "hello");
    CHECK((text = reallocarray(text, 100, 10)) && is_own(text) && strcmp(text, "hello") == 0);
    free(text);
    CHECK((text = reallocarray(NULL, 3, 7)) && is_own(text));
    free(text);
    CHECK(!reallocarray(NULL, SIZE_MAX, 2) && errno == ENOMEM);
    CHECK((text = strdup("hello")) && is_own(text));
    free(text);
    /* Not in every libc. */
    void (*sized)(void *, size_t) = dlsym(RTLD_DEFAULT, "free_sized");
    void (*aligned_sized)(void *, size_t, size_t) = dlsym(RTLD_DEFAULT, "free_aligned_sized");
    CHECK((sized && aligned_sized) || !is_weir());
    if (sized) sized(malloc(10), 10), sized(NULL, 10);
    if (aligned_sized) aligned_sized(malloc(10), 16, 10), aligned_sized(NULL, 16, 10);
    CHECK(frees >= 7 || !sized);
    return 0;
}
