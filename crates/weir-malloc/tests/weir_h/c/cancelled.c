/* A thread that is cancelled in a callback, of which argv[1] names the kind. Where others wait for the call it ends after that. In a
   ctor or a dtor it ends at once, and the object is lost. Under another malloc there are no callbacks. */
#include "check.h"

#include "weir.h"

NAMED(cache_create) NAMED(cache_destroy) NAMED(cache_alloc) NAMED(cache_free) NAMED(cache_stats) NAMED(trim)
NAMED(shrinker_register) NAMED(unregister) NAMED(queue_create) NAMED(queue_destroy) NAMED(queue_serve)
NAMED(evictable_create) NAMED(evictable_prepare) NAMED(evictable_publish) NAMED(evictable_release)
NAMED(evictable_remove) NAMED(evictable_destroy)

static weir_cache *cache;
static volatile int begun, ended;

/* What each callback does. Only the first call is cancelled. */
static void be_cancelled(void) {
    if (begun++ == 0) pthread_cancel(pthread_self());
    pthread_testcancel();
    ended++;
}

static int ctor(void *object, size_t size, void *argument) { return be_cancelled(), 0; }
static void dtor(void *object, size_t size, void *argument) { be_cancelled(); }
static int init(void *object, size_t size) { return be_cancelled(), 0; }
static void fini(void *object, size_t size) { be_cancelled(); }
static size_t count(void *data) { return 1 << 30; }
static size_t scan(size_t bytes, int reason, void *data) { return be_cancelled(), WEIR_SCAN_STOP; }
static void on_evict(void *data, const void *key, size_t key_size, const void *value, size_t size, unsigned cause) {
    be_cancelled();
}

static void *use(void *argument) {
    p_cache_free(cache, p_cache_alloc(cache));
    pthread_testcancel();
    return NULL;
}

static void *destroy(void *argument) {
    CHECK(p_cache_destroy(cache) == 0);
    pthread_testcancel();
    return NULL;
}

static void *serve(void *queue) {
    WAIT_FOR((p_queue_serve(queue, 0), begun > 0));
    pthread_testcancel();
    return NULL;
}

static void *evict(void *entries) {
    CHECK(p_evictable_remove(entries, "key", 3) == 0);
    pthread_testcancel();
    return NULL;
}

static void is_cancelled(void *(*body)(void *), void *argument) {
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0 && pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED && begun >= 1);
}

/* An object is lost, and the cache goes on. */
static void of_each_object(weir_cache_ctor *ctor, weir_cache_dtor *dtor) {
    CHECK(cache = p_cache_create("cancelled", 100, 0, ctor, dtor, NULL, NULL, 0));
    is_cancelled(use, NULL);
    CHECK(begun == 1 && ended == 0);
    void *object = p_cache_alloc(cache);
    CHECK(object);
    p_cache_free(cache, object);
    struct weir_cache_stats stats;
    CHECK(p_cache_stats(cache, &stats, sizeof stats) == 0 && stats.used == 1);
    CHECK(p_cache_destroy(cache) == -1 && errno == EBUSY);
}

int main(int argc, char **argv) {
    if (!is_weir()) skip_all("it is of Weir's own");
    CHECK(argc == 2);
    ignore_stalls();
    const char *which = argv[1];
    if (strcmp(which, "ctor") == 0) {
        of_each_object(ctor, NULL);
    } else if (strcmp(which, "dtor") == 0) {
        of_each_object(NULL, dtor);
    } else if (strcmp(which, "init") == 0) {
        CHECK(cache = p_cache_create("cancelled", 100, 0, NULL, NULL, init, NULL, 0));
        is_cancelled(use, NULL);
        CHECK(begun == ended && p_cache_destroy(cache) == 0);
    } else if (strcmp(which, "fini") == 0) {
        CHECK(cache = p_cache_create("cancelled", 100, 0, NULL, NULL, NULL, fini, 0));
        p_cache_free(cache, p_cache_alloc(cache));
        is_cancelled(destroy, NULL);
        CHECK(begun == ended && begun > 1);
    } else if (strcmp(which, "on_evict") == 0) {
        struct weir_evictable_options options = {.on_evict = on_evict};
        weir_evictable *entries = p_evictable_create(&options, sizeof options);
        weir_entry *entry = p_evictable_prepare(entries, "key", 3, 4);
        CHECK(entry && p_evictable_publish(entries, entry) == 0);
        p_evictable_release(entries, entry);
        is_cancelled(evict, entries);
        CHECK(begun == 1 && ended == 1 && p_evictable_destroy(entries) == 0);
    } else if (strcmp(which, "scan") == 0) {
        weir_queue *queue = p_queue_create();
        struct weir_shrinker shrinker = {.name = "cancelled", .count = count, .scan = scan, .thread = WEIR_THREAD_QUEUE,
                                         .queue = queue};
        weir_callback *callback = p_shrinker_register(&shrinker, sizeof shrinker);
        CHECK(queue && callback);
        set("limit", 1 << 20);
        is_cancelled(serve, queue);
        set("limit", 0);
        CHECK(begun == ended && p_unregister(callback) == 0);
        p_queue_destroy(queue);
    } else {
        return 2;
    }
    return 0;
}
