/* A callback of an object cache or of an evictable cache that throws, by argv[1]: it is named, and the process ends. */
#include "check.h"

#include "weir.h"

NAMED(cache_create) NAMED(cache_alloc) NAMED(cache_free) NAMED(cache_destroy)
NAMED(evictable_create) NAMED(evictable_prepare) NAMED(evictable_value)
NAMED(evictable_publish) NAMED(evictable_release) NAMED(evictable_remove)

static int makes(void *, size_t, void *) { return 0; }
static int ctor(void *, size_t, void *) { throw 7; }
static void dtor(void *, size_t, void *) { throw 7; }
static int init(void *, size_t) { throw 7; }
static void fini(void *, size_t) { throw 7; }
static int argument;
static void on_evict(void *data, const void *key, size_t key_size, const void *value, size_t size, unsigned cause) {
    CHECK(data == &argument && key_size == 3 && memcmp(key, "key", 3) == 0);
    CHECK(size == 4 && memcmp(value, "data", 4) == 0 && cause == WEIR_EVICTED_REMOVED);
    throw 7;
}

/* A cache of which the callback `what` throws. */
static weir_cache *cache_with(const char *what) {
    auto is = [what](const char *other) { return strcmp(what, other) == 0; };
    return p_cache_create("thrower", 16, 0, is("ctor") ? ctor : makes, is("dtor") ? dtor : nullptr,
                          is("init") ? init : nullptr, is("fini") ? fini : nullptr, 0);
}

/* Takes an entry out of an evictable cache. */
static void evict() {
    weir_evictable_options options = {};
    options.on_evict = on_evict;
    options.data = &argument;
    weir_evictable *cache = p_evictable_create(&options, sizeof options);
    weir_entry *entry = p_evictable_prepare(cache, "key", 3, 4);
    CHECK(entry);
    memcpy(p_evictable_value(cache, entry, nullptr), "data", 4);
    CHECK(p_evictable_publish(cache, entry) == 0);
    p_evictable_release(cache, entry);
    p_evictable_remove(cache, "key", 3);
}

int main(int argc, char **argv) {
    if (!is_weir()) skip_all("it is of Weir's own");
    CHECK(argc == 2);
    weir_cache *cache = cache_with(argv[1]);
    CHECK(cache);
    try {
        if (strcmp(argv[1], "on_evict") == 0) evict();
        void *object = p_cache_alloc(cache);
        CHECK(object);
        p_cache_free(cache, object);
        p_cache_destroy(cache);
    } catch (int) {
        dprintf(2, "caught\n");
    }
    dprintf(2, "survived\n");
    return 0;
}
