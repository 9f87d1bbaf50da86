/* A forked child has no thread of its parent's. It gives the memory of a cache with a fini back by itself all the same, as does its
 * own child: the thread that calls fini is made again, once the cache is used. */
#include "check.h"
#include "tasks.h"

#include "weir.h"

enum { SIZE = 1000, MANY = 20000 };

NAMED(cache_create) NAMED(cache_alloc) NAMED(cache_free) NAMED(cache_alloc_batch) NAMED(cache_free_batch)

static weir_cache *cache;
static int finis;

static int init(void *object, size_t size) {
    memset(object, 1, size);
    return 0;
}

/* Never inside a free of the program's. */
static void fini(void *object, size_t size) {
    CHECK(syscall(SYS_gettid) != getpid());
    __atomic_add_fetch(&finis, 1, __ATOMIC_RELAXED);
}

static int finalizers(void) {
    int task[MOST_TASKS], count = threads(task), found = 0;
    for (int i = 0; i < count; i++) {
        char name[64];
        status(task[i], "Name:", name, sizeof name);
        found += strcmp(name, "Name:\tweir-fini\n") == 0;
    }
    return found;
}

static void one_by_one(void) {
    static void *objects[MANY];
    for (int i = 0; i < MANY; i++) CHECK(objects[i] = p_cache_alloc(cache));
    for (int i = 0; i < MANY; i++) p_cache_free(cache, objects[i]);
}

static void in_batches(void) {
    static void *objects[MANY];
    CHECK(p_cache_alloc_batch(cache, objects, MANY) == MANY);
    p_cache_free_batch(cache, objects, MANY);
}

/* The peak is over: most of it goes, with nothing called meanwhile. */
static void gives_back(void (*peak)(void)) {
    int before = __atomic_load_n(&finis, __ATOMIC_RELAXED);
    peak();
    WAIT_FOR(__atomic_load_n(&finis, __ATOMIC_RELAXED) - before > MANY / 2);
    CHECK(finalizers() == 1);
}

/* A child that has such a peak, while a child of its own has another. */
static pid_t child_with(void (*peak)(void), void (*of_grandchild)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child) return child;
    CHECK(finalizers() == 0);
    pid_t grandchild = of_grandchild ? child_with(of_grandchild, NULL) : 0;
    gives_back(peak);
    if (grandchild) CHECK(ends_well(grandchild));
    _exit(0);
}

int main(void) {
    if (!is_weir()) skip_all("it is of Weir's own");
    CHECK(cache = p_cache_create("forked", SIZE, 0, NULL, NULL, init, fini, 0));
    WAIT_FOR(finalizers() == 1);
    CHECK(ends_well(child_with(one_by_one, in_batches)));
    return 0;
}
