/* A callback of an object cache that throws, by argv[1]: it is named, and the process ends. */
#include "check.h"

#include "weir.h"

NAMED(cache_create) NAMED(cache_alloc) NAMED(cache_free) NAMED(cache_destroy)

static int makes(void *, size_t, void *) { return 0; }
static int ctor(void *, size_t, void *) { throw 7; }
static void dtor(void *, size_t, void *) { throw 7; }
static int init(void *, size_t) { throw 7; }
static void fini(void *, size_t) { throw 7; }

/* A cache of which the callback `what` throws. */
static weir_cache *cache_with(const char *what) {
    auto is = [what](const char *other) { return strcmp(what, other) == 0; };
    return p_cache_create("thrower", 16, 0, is("ctor") ? ctor : makes, is("dtor") ? dtor : nullptr,
                          is("init") ? init : nullptr, is("fini") ? fini : nullptr, 0);
}

int main(int argc, char **argv) {
    if (!is_weir()) skip_all("it is of Weir's own");
    CHECK(argc == 2);
    weir_cache *cache = cache_with(argv[1]);
    CHECK(cache);
    try {
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
