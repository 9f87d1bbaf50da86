/* The thread that calls fini is refused at first, as by a limit of processes, and made once objects wait for it. This file's
 * pthread_create stands before libc's. */
#include "check.h"

#include "weir.h"

enum { SIZE = 3000, MANY = 3000 }; /* a heap that is worth a background thread */
static int (*real_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static volatile int refuses = 1;
static int asked, finis;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
    return refuses ? EAGAIN : real_create(thread, attributes, body, argument);
}

static void fini(void *object, size_t size) { __atomic_add_fetch(&finis, 1, __ATOMIC_RELAXED); }

NAMED(cache_create) NAMED(cache_alloc) NAMED(cache_free)

/* Rests until the objects are idle, and comes back. */
static int is_finalized(weir_cache *cache) {
    static void *object[MANY];
    for (int i = 0; i < MANY; i++) CHECK((object[i] = p_cache_alloc(cache)));
    for (int i = 0; i < MANY; i++) p_cache_free(cache, object[i]);
    usleep(1500000);
    return __atomic_load_n(&finis, __ATOMIC_RELAXED) > 0;
}

int main(void) {
    if (!is_weir()) skip_all("it is of Weir's own");
    alarm(LIFETIME);
    CHECK(real_create = (__typeof__(real_create))dlsym(RTLD_NEXT, "pthread_create"));
    weir_cache *cache = p_cache_create("refused", SIZE, 64, NULL, NULL, NULL, fini, 0);
    CHECK(cache && asked == 1);
    WAIT_FOR(is_finalized(cache) || asked > 1);
    CHECK(finis == 0);
    refuses = 0;
    WAIT_FOR(is_finalized(cache));
    return 0;
}
