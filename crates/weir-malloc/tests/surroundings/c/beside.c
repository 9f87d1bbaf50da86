/* Another preload library, which wraps malloc and free and overrides getpid. */
#include "check.h"

static void *(*next_malloc)(size_t);
static void (*next_free)(void *);
long beside_mallocs, beside_frees;

void *malloc(size_t size) {
    if (!next_malloc) next_malloc = dlsym(RTLD_NEXT, "malloc");
    __atomic_add_fetch(&beside_mallocs, 1, __ATOMIC_RELAXED);
    return next_malloc(size);
}
void free(void *block) {
    if (!next_free) next_free = dlsym(RTLD_NEXT, "free");
    __atomic_add_fetch(&beside_frees, 1, __ATOMIC_RELAXED);
    next_free(block);
}
int getpid(void) { return 4242; }
