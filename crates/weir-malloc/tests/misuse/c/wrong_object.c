/*
 * argv[1] says what a program does wrong with an object of a
 * cache. It prints the address, does it, and must not come to its end. With abort_on_misuse at 0 the call is ignored, and
 * the program checks that it was.
 */
#include "check.h"

#include "weir.h"

NAMED(cache_create) NAMED(cache_destroy) NAMED(cache_alloc) NAMED(cache_free)
NAMED(cache_alloc_batch) NAMED(cache_free_batch) NAMED(cache_set_limit) NAMED(cache_stats)
NAMED(zone_create) NAMED(zone_destroy) NAMED(zone_alloc) NAMED(trim)
NAMED(evictable_create) NAMED(evictable_destroy) NAMED(evictable_get)
NAMED(queue_create) NAMED(queue_destroy) NAMED(queue_serve)

enum { SIZE = 200 };

static int dtors, finis;

/* Reads what the object points to: of an object that is not the cache's, or free, that would be a wild pointer. */
static void dtor(void *object, size_t size, void *argument) {
    (void)argument;
    CHECK(size == SIZE);
    dtors += **(int **)object;
    *(void **)object = NULL;
}

static void fini(void *object, size_t size) {
    (void)object;
    CHECK(size == SIZE);
    __atomic_add_fetch(&finis, 1, __ATOMIC_RELAXED);
}

static int one = 1;

static int ctor(void *object, size_t size, void *argument) {
    (void)size, (void)argument;
    *(int **)object = &one;
    return 0;
}

static int init(void *object, size_t size) {
    memset(object, 0, size);
    return 0;
}

static void *wrong(void *pointer) {
    dprintf(1, "%p\n", pointer);
    return pointer;
}

int main(int argc, char **argv) {
    if (!is_weir()) skip_all("it is of Weir's own");
    CHECK(argc == 2);
    const char *which = argv[1];
    int finalized = strcmp(which, "freed-and-finalized") == 0;
    weir_cache *cache = p_cache_create("checked", SIZE, 0, ctor, dtor, finalized ? init : NULL, finalized ? fini : NULL, 0);
    weir_cache *plain = p_cache_create("plain", SIZE, 0, NULL, NULL, NULL, NULL, 0);
    weir_cache *limited = p_cache_create("limited", SIZE, 0, NULL, NULL, NULL, NULL, WEIR_CACHE_LIMITED);
    CHECK(cache && plain && limited);
    void *keep[8], *object = NULL;
    for (int i = 0; i < 8; i++) CHECK((keep[i] = p_cache_alloc(cache)));
    char *other = p_cache_alloc(plain), *counted = p_cache_alloc(limited);
    CHECK(other && counted);
    if (strcmp(which, "freed") == 0) {
        free(wrong(keep[3]));
        CHECK((object = p_cache_alloc(cache)));
    } else if (strcmp(which, "freed-limited") == 0) {
        free(wrong(counted));
        CHECK((object = p_cache_alloc(limited)));
    } else if (strcmp(which, "freed-in-a-batch") == 0) {
        free(wrong(keep[3]));
        static void *batch[1000];
        CHECK(p_cache_alloc_batch(cache, batch, 1000) == 1000);
        /* Without restartable sequences batches come from the depot, and this object waits in the CPU's bucket. */
        for (int i = 0; i < 100; i++) CHECK((object = p_cache_alloc(cache)));
    } else if (finalized) {
        free(wrong(keep[3]));
        for (int i = 0; i < 8; i++)
            if (i != 3) p_cache_free(cache, keep[i]);
        CHECK(p_cache_destroy(cache) == 0);
    } else if (strcmp(which, "deleted-by-realloc") == 0) {
        errno = 0;
        CHECK(!realloc(wrong(keep[3]), 0) && errno == EINVAL);
    } else if (strcmp(which, "resized") == 0) {
        errno = 0;
        CHECK(!realloc(wrong(keep[3]), 5000) && errno == EINVAL);
    } else if (strcmp(which, "resized-plain") == 0) {
        errno = 0;
        CHECK(!realloc(wrong(other), SIZE) && errno == EINVAL);
    } else if (strcmp(which, "twice") == 0) {
        p_cache_free(cache, keep[3]);
        p_cache_free(cache, wrong(keep[3]));
        CHECK(dtors == 1);
    } else if (strcmp(which, "twice-in-a-batch") == 0) {
        keep[5] = wrong(keep[3]);
        p_cache_free_batch(cache, keep, 8);
        CHECK(dtors == 7);
    } else if (strcmp(which, "twice-with-others-between") == 0) {
        for (int i = 0; i < 8; i++) p_cache_free(cache, keep[i]);
        p_cache_free(cache, wrong(keep[3]));
        CHECK(dtors == 8);
    } else if (strcmp(which, "overrun") == 0) {
        memset(keep[3], 0x55, SIZE + 1);
        *(int **)keep[3] = &one;
        p_cache_free(cache, wrong(keep[3]));
        CHECK(dtors == 0);
    } else if (strcmp(which, "inside") == 0) {
        p_cache_free(cache, wrong((char *)keep[3] + 16));
        CHECK(dtors == 0);
    } else if (strcmp(which, "odd") == 0) {
        p_cache_free(cache, wrong((char *)keep[3] + 3));
        CHECK(dtors == 0);
    } else if (strcmp(which, "other-cache") == 0) {
        p_cache_free(cache, wrong(other));
        CHECK(dtors == 0);
    } else if (strcmp(which, "other-cache-plain") == 0) {
        p_cache_free(plain, wrong(keep[3]));
    } else if (strcmp(which, "mallocs") == 0) {
        p_cache_free(cache, wrong(malloc(SIZE)));
        CHECK(dtors == 0);
    } else if (strcmp(which, "stack") == 0) {
        int local[100] = {0};
        p_cache_free(cache, wrong(local));
        CHECK(dtors == 0);
    } else if (strcmp(which, "no-cache") == 0) {
        p_cache_free(NULL, wrong(keep[3]));
    } else if (strcmp(which, "no-cache-batch") == 0) {
        p_cache_free_batch(NULL, wrong(keep), 8);
    } else if (strcmp(which, "no-array") == 0) {
        p_cache_free_batch(wrong(cache), NULL, 8);
    } else if (strcmp(which, "null-in-a-batch") == 0) {
        keep[5] = NULL;
        wrong(&keep[5]);
        p_cache_free_batch(cache, keep, 8);
        CHECK(dtors == 0);
    } else if (strcmp(which, "destroyed-twice") == 0) {
        weir_cache *gone = p_cache_create("gone", SIZE, 0, NULL, NULL, NULL, NULL, 0);
        CHECK(p_cache_destroy(gone) == 0);
        errno = 0;
        CHECK(p_cache_destroy(wrong(gone)) == -1 && errno == EINVAL);
    } else if (strncmp(which, "destroyed-", 10) == 0) {
        weir_cache *gone = p_cache_create("gone", SIZE, 0, NULL, NULL, NULL, NULL, 0);
        CHECK(p_cache_destroy(gone) == 0);
        wrong(gone);
        errno = 0;
        if (strcmp(which, "destroyed-alloc") == 0) CHECK(!p_cache_alloc(gone) && errno == EINVAL);
        else if (strcmp(which, "destroyed-free") == 0) p_cache_free(gone, other);
        else if (strcmp(which, "destroyed-batch") == 0) CHECK(p_cache_alloc_batch(gone, keep, 8) == 0 && errno == EINVAL);
        else if (strcmp(which, "destroyed-free-batch") == 0) p_cache_free_batch(gone, keep, 8);
        else CHECK(!"known");
        CHECK(dtors == 0);
    } else if (strcmp(which, "zone-destroyed-twice") == 0) {
        weir_zone *gone = p_zone_create(WEIR_ZONE_ANONYMOUS, 2 << 20, -1);
        CHECK(gone && p_zone_destroy(gone) == 0);
        errno = 0;
        CHECK(p_zone_destroy(wrong(gone)) == -1 && errno == EINVAL);
    } else if (strncmp(which, "evictable-destroyed-", 20) == 0) {
        weir_evictable *gone = p_evictable_create(NULL, 0);
        CHECK(gone && p_evictable_destroy(gone) == 0);
        wrong(gone);
        errno = 0;
        if (strcmp(which + 20, "twice") == 0) CHECK(p_evictable_destroy(gone) == -1 && errno == EINVAL);
        else if (strcmp(which + 20, "get") == 0) CHECK(!p_evictable_get(gone, "a", 1) && errno == EINVAL);
        else CHECK(!"known");
    } else if (strncmp(which, "queue-destroyed-", 16) == 0) {
        weir_queue *gone = p_queue_create();
        CHECK(gone);
        p_queue_destroy(gone);
        wrong(gone);
        errno = 0;
        if (strcmp(which + 16, "twice") == 0) p_queue_destroy(gone);
        else if (strcmp(which + 16, "serve") == 0) CHECK(p_queue_serve(gone, 0) == -1 && errno == EINVAL);
        else CHECK(!"known");
    } else if (strcmp(which, "right") == 0) {
        /* What is right is not named: objects go round, also through reclaim and by new slabs, with zeros and limits. */
        weir_cache *zeros = p_cache_create("zeros", 500, 64, NULL, dtor, NULL, NULL, WEIR_CACHE_ZERO);
        weir_cache *pages = p_cache_create("pages", 4096, 4096, NULL, NULL, NULL, NULL, WEIR_CACHE_LIMITED);
        static void *many[3000];
        CHECK(zeros && pages);
        for (int round = 0; round < 5; round++) {
            for (int i = 0; i < 3000; i++) CHECK((many[i] = p_cache_alloc(cache)));
            for (int i = 0; i < 3000; i++) p_cache_free(cache, many[i * 7 % 3000]);
            if (round % 2) p_trim();
            CHECK(p_cache_alloc_batch(limited, many, 3000) == 3000);
            for (int i = 0; i < 3000; i++) memset(many[i], 0xff, SIZE);
            p_cache_free_batch(limited, many, 3000);
            CHECK(p_cache_alloc_batch(pages, many, 100) == 100);
            for (int i = 0; i < 100; i++) CHECK(aligned(many[i], 4096)), memset(many[i], 0xff, 4096);
            p_cache_free_batch(pages, many, 100);
        }
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 100; i++) CHECK((many[i] = p_cache_alloc(limited)) && !p_cache_set_limit(limited, 200));
            for (int i = 0; i < 100; i++) p_cache_free(limited, many[i]);
        }
        dtors = 0;
        CHECK((object = p_cache_alloc(zeros)) && all_zero(object, 500) && aligned(object, 64));
        CHECK(p_cache_destroy(pages) == 0);
        return 0;
    } else {
        CHECK(!"known");
    }
    dprintf(2, "survived\n");
    return 0;
}
