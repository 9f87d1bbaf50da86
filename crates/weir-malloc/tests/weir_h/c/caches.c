/* weir.h's object caches, by their contract. Under another malloc there are none: then there is nothing to check. */
#include "check.h"

#include <sched.h>
#include <signal.h>
#include "tasks.h"
#include "weir.h"

enum { SIZE = 200, MANY = 3000 };

NAMED(cache_create) NAMED(cache_destroy) NAMED(cache_alloc) NAMED(cache_alloc_arg) NAMED(cache_free)
NAMED(cache_free_arg) NAMED(cache_alloc_batch) NAMED(cache_free_batch) NAMED(cache_set_limit)
NAMED(cache_set_reserve) NAMED(cache_stats) NAMED(cache_next) NAMED(trim)

static int inits, finis, ctors, dtors, init_fails, ctor_fails;
static const uint64_t MARK = 0x77656972;

static int init(void *object, size_t size) {
    CHECK(size == SIZE);
    if (init_fails) return 1;
    *(uint64_t *)object = MARK;
    free(malloc(100)); /* callbacks may allocate */
    __atomic_add_fetch(&inits, 1, __ATOMIC_RELAXED);
    return 0;
}

static void fini(void *object, size_t size) {
    CHECK(size == SIZE && *(uint64_t *)object == MARK);
    free(malloc(100));
    __atomic_add_fetch(&finis, 1, __ATOMIC_RELAXED);
}

static int ctor(void *object, size_t size, void *argument) {
    CHECK(size == SIZE && *(uint64_t *)object == MARK);
    if (ctor_fails) return 1;
    ((void **)object)[1] = argument;
    ctors++;
    return 0;
}

static void dtor(void *object, size_t size, void *argument) {
    CHECK(size == SIZE && ((void **)object)[1] == argument);
    dtors++;
}

static struct weir_cache_stats stats_of(weir_cache *cache) {
    struct weir_cache_stats stats;
    CHECK(p_cache_stats(cache, &stats, sizeof stats) == 0);
    return stats;
}

static void plain(void) {
    weir_cache *cache = p_cache_create("plain", 72, 8, NULL, NULL, NULL, NULL, WEIR_CACHE_ZERO);
    CHECK(cache);
    static unsigned char *object[MANY];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            CHECK((object[i] = p_cache_alloc(cache)) && (uintptr_t)object[i] % 8 == 0);
            for (int byte = 0; byte < 72; byte++) CHECK(object[i][byte] == 0);
            fill(object[i], 72, i);
        }
        for (int i = 0; i < MANY; i++) CHECK(holds(object[i], 72, i)), p_cache_free(cache, object[i]);
    }
    struct weir_cache_stats stats = stats_of(cache);
    CHECK(strcmp(stats.name, "plain") == 0 && stats.size == 72 && stats.used == 0);
    CHECK(stats.requests >= 3 * MANY && stats.requests < 4 * MANY && stats.failures == 0 && stats.limit == WEIR_CACHE_NO_LIMIT);
    CHECK(stats.bucket_min <= stats.bucket && stats.bucket <= stats.bucket_max);
    CHECK(p_cache_alloc_batch(cache, (void **)object, MANY) == MANY);
    CHECK(stats_of(cache).used == MANY);
    errno = 0;
    CHECK(p_cache_destroy(cache) == -1 && errno == EBUSY);
    p_cache_free_batch(cache, (void **)object, MANY);
    p_cache_free(cache, NULL);
    CHECK(p_cache_destroy(cache) == 0 && p_cache_destroy(NULL) == 0);
}

/* malloc_trim() calls no fini: whoever calls it may hold what that waits for. */
static pthread_t trimmer;
static int finalized;
static void fini_elsewhere(void *object, size_t size) {
    CHECK(!pthread_equal(pthread_self(), trimmer));
    __atomic_add_fetch(&finalized, 1, __ATOMIC_RELAXED);
}

static void trimmed(void) {
    weir_cache *cache = p_cache_create("trimmed", SIZE, 64, NULL, NULL, NULL, fini_elsewhere, 0);
    static void *object[MANY];
    trimmer = pthread_self();
    CHECK(cache && p_cache_alloc_batch(cache, object, MANY) == MANY);
    p_cache_free_batch(cache, object, MANY);
    malloc_trim(0);
    WAIT_FOR(__atomic_load_n(&finalized, __ATOMIC_RELAXED) >= MANY);
    /* The thread may have the last slab in hand, and all are gone then. */
    WAIT_FOR(stats_of(cache).slab_bytes == 0);
    CHECK(p_cache_destroy(cache) == 0);
}

static void constructed(void) {
    weir_cache *cache = p_cache_create("constructed", SIZE, 64, ctor, dtor, init, fini, 0);
    CHECK(cache);
    static void *object[MANY];
    for (int i = 0; i < MANY; i++) CHECK((object[i] = p_cache_alloc_arg(cache, &object[i])));
    CHECK(inits >= MANY && ctors == MANY && finis == 0);
    for (int i = 0; i < MANY; i++) p_cache_free_arg(cache, object[i], &object[i]);
    CHECK(dtors == MANY);
    int made = inits;
    struct weir_cache_stats before = stats_of(cache);
    ctor_fails = 1, errno = 0;
    CHECK(!p_cache_alloc(cache) && errno == ENOMEM);
    CHECK(p_cache_alloc_batch(cache, object, 3) == 0 && errno == ENOMEM);
    ctor_fails = 0;
    CHECK(inits == made && stats_of(cache).used == 0);
    CHECK(stats_of(cache).failures == before.failures + 4 && stats_of(cache).requests == before.requests);
    CHECK(p_trim() == 1);
    /* Either this thread or the library's took them down. */
    WAIT_FOR(__atomic_load_n(&finis, __ATOMIC_RELAXED) >= made);
    CHECK(__atomic_load_n(&finis, __ATOMIC_RELAXED) == made);
    init_fails = 1, errno = 0;
    CHECK(!p_cache_alloc(cache) && errno == ENOMEM);
    init_fails = 0;
    CHECK((object[0] = p_cache_alloc(cache)));
    pid_t child = fork();
    if (child == 0) {
        /* In a child there is no thread for it. */
        p_cache_free(cache, object[0]);
        CHECK(p_cache_destroy(cache) == 0 && finis == inits);
        _exit(0);
    }
    CHECK(ends_well(child));
    p_cache_free(cache, object[0]);
    CHECK(p_cache_destroy(cache) == 0);
    CHECK(__atomic_load_n(&finis, __ATOMIC_RELAXED) == inits);
}

/* The thread that calls fini is there, and takes no signal that the program blocks later and waits for. */
static void signals(void) {
    weir_cache *cache = p_cache_create("signals", SIZE, 64, NULL, NULL, init, fini, 0);
    CHECK(cache);
    WAIT_FOR(({
        int task[MOST_TASKS], count = threads(task), found = 0;
        char name[64];
        for (int i = 0; i < count; i++) status(task[i], "Name:", name, sizeof name), found |= !strcmp(name, "Name:\tweir-fini\n");
        found;
    }));
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGTERM);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0 && kill(getpid(), SIGTERM) == 0);
    CHECK(sigtimedwait(&set, NULL, &(struct timespec){.tv_sec = PATIENCE}) == SIGTERM);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0 && p_cache_destroy(cache) == 0);
}

static void limits(void) {
    weir_cache *cache = p_cache_create("limited", 3000, 0, NULL, NULL, NULL, NULL, WEIR_CACHE_LIMITED);
    CHECK(cache && stats_of(cache).limit == WEIR_CACHE_NO_LIMIT);
    CHECK(p_cache_set_limit(cache, 10) == 0);
    void *object[20];
    errno = 0;
    CHECK(p_cache_alloc_batch(cache, object, 20) == 10 && errno == ENOMEM);
    CHECK(!p_cache_alloc(cache));
    CHECK(stats_of(cache).failures == 11);
    p_cache_free_batch(cache, object, 10);
    CHECK(p_cache_set_reserve(cache, 50) == 0);
    p_trim();
    struct weir_cache_stats stats = stats_of(cache);
    CHECK(stats.free_cpu + stats.free_depot + stats.free_slab >= 50 && stats.reserve == 50);
    CHECK(p_cache_destroy(cache) == 0);
    cache = p_cache_create("unlimited", 3000, 0, NULL, NULL, NULL, NULL, 0);
    errno = 0;
    CHECK(p_cache_set_limit(cache, 10) == -1 && errno == EINVAL);
    CHECK(p_cache_destroy(cache) == 0);
}

static void refused(void) {
    static const struct {
        size_t size, align;
        unsigned flags;
    } wrong[] = {{0, 0, 0}, {WEIR_CACHE_MAX_OBJECT + 1, 0, 0}, {8, 24, 0}, {8, 8192, 0}, {8, 0, 1u << 20}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        errno = 0;
        CHECK(!p_cache_create("wrong", wrong[i].size, wrong[i].align, NULL, NULL, NULL, NULL, wrong[i].flags));
        CHECK(errno == EINVAL);
    }
}

/* More caches than have buckets of their own: all of them work, with malloc's free too where they have no dtor. */
static void many(void) {
    static weir_cache *all[500];
    static void *objects[500][3];
    for (int i = 0; i < 500; i++) {
        CHECK((all[i] = p_cache_create("many", 64 + 16 * (i % 7), 0, NULL, NULL, NULL, NULL, 0)));
        for (int k = 0; k < 3; k++) {
            CHECK((objects[i][k] = p_cache_alloc(all[i])));
            memset(objects[i][k], i, 64);
        }
    }
    for (int i = 0; i < 500; i++) {
        for (int k = 0; k < 3; k++) CHECK(((unsigned char *)objects[i][k])[63] == (unsigned char)i);
        p_cache_free(all[i], objects[i][0]);
        free(objects[i][1]);
        CHECK(p_cache_destroy(all[i]) == -1 && errno == EBUSY);
        p_cache_free(all[i], objects[i][2]);
        CHECK(p_cache_destroy(all[i]) == 0);
    }
}

static void listed(void) {
    weir_cache *cache = p_cache_create("a name that is longer than what is kept of it", 16, 0, NULL, NULL, NULL, NULL, 0);
    struct weir_cache_stats stats = {.number = 0};
    size_t count = 0, last = 0;
    while (p_cache_next(&stats, sizeof stats) == 1) count++, CHECK(stats.number > last), last = stats.number;
    /* malloc's classes of sizes and of runs are caches 1 to 133: this is the first one behind them. */
    CHECK(count == 134 && strcmp(stats.name, "a name that is longer than what") == 0);
    errno = 0;
    CHECK(p_cache_next(&stats, 8) == -1 && errno == EINVAL);
    CHECK(p_cache_destroy(cache) == 0);
}

/* A name may have anything in it, and XML may not. */
static void oddly_named(void) {
    weir_cache *cache = p_cache_create("odd \1\n<&\"\x7f", 16, 0, NULL, NULL, NULL, NULL, 0);
    CHECK(cache);
    p_cache_free(cache, p_cache_alloc(cache));
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    CHECK(stream && malloc_info(0, stream) == 0 && fclose(stream) == 0);
    CHECK(strstr(text, "<cache name=\"odd ?&#10;&lt;&amp;&quot;\x7f\" "));
    free(text);
    CHECK(p_cache_destroy(cache) == 0);
}

/* One allocates, the other frees. */
enum { RING = 1024, PACKETS = 200000 };
static void *ring[RING];

static void *consume(void *cache) {
    for (int i = 0; i < PACKETS; i++) {
        void *object;
        while (!(object = __atomic_exchange_n(&ring[i % RING], NULL, __ATOMIC_ACQUIRE))) sched_yield();
        CHECK(*(int *)object == i);
        p_cache_free(cache, object);
    }
    return NULL;
}

static void forwarded(void) {
    weir_cache *cache = p_cache_create("packets", 2048, 0, NULL, NULL, NULL, NULL, 0);
    pthread_t consumer;
    CHECK(pthread_create(&consumer, NULL, consume, cache) == 0);
    for (int i = 0; i < PACKETS; i++) {
        int *object = p_cache_alloc(cache);
        CHECK(object);
        *object = i;
        while (__atomic_load_n(&ring[i % RING], __ATOMIC_RELAXED)) sched_yield();
        __atomic_store_n(&ring[i % RING], object, __ATOMIC_RELEASE);
        if (i % 20000 == 0) p_trim();
    }
    CHECK(pthread_join(consumer, NULL) == 0);
    struct weir_cache_stats stats = stats_of(cache);
    /* A free that was interrupted between its count and its commit is counted twice. */
    CHECK(stats.used == 0 && stats.requests >= PACKETS && stats.requests < PACKETS + PACKETS / 100);
    CHECK(p_cache_destroy(cache) == 0);
}

int main(void) {
    if (!is_weir()) skip_all("it is of Weir's own");
    plain();
    constructed();
    trimmed();
    signals();
    limits();
    refused();
    many();
    listed();
    oddly_named();
    forwarded();
    return 0;
}
