/* A shrinker that throws a C++ exception is named and not called again; others are. */
#include "check.h"

#include "weir.h"

#include <exception>

NAMED(shrinker_register) NAMED(unregister) NAMED(callback_stats)
NAMED(queue_create) NAMED(queue_destroy) NAMED(queue_serve)

static volatile int calls, scans;
static size_t count(void *) { return 100 << 20; }
struct Local {
    ~Local() { __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED); }
};
static size_t throws(size_t, int, void *) {
    Local local;
    throw 7;
}
static size_t scan(size_t bytes, int, void *) {
    scans = scans + 1;
    return bytes;
}

/* An exception that is counted. */
static int errors;
struct Error {
    Error() { errors++; }
    Error(const Error &) { errors++; }
    ~Error() { errors--; }
};
static size_t throws_error(size_t, int, void *) {
    calls = calls + 1;
    throw Error();
}

/* This thread, which serves the queue, is in no exception afterwards. */
static int on_a_thread_of_the_programs() {
    struct weir_shrinker bad = {};
    bad.name = "bad", bad.count = count, bad.scan = throws_error;
    bad.thread = WEIR_THREAD_QUEUE, bad.queue = p_queue_create();
    weir_callback *callback = p_shrinker_register(&bad, sizeof bad);
    CHECK(callback);
    set("limit", 1 << 20);
    struct weir_callback_stats stats;
    WAIT_FOR((p_queue_serve(bad.queue, 100), p_callback_stats(callback, &stats, sizeof stats) == 0 && stats.is_disabled));
    CHECK(calls == 1 && errors == 0 && std::uncaught_exceptions() == 0);
    CHECK(p_unregister(callback) == 0);
    p_queue_destroy(bad.queue);
    return 0;
}

int main(int argc, char **) {
    if (!is_weir()) skip_all("it is of Weir's own");
    memset(malloc(30 << 20), 1, 30 << 20);
    if (argc > 1) return on_a_thread_of_the_programs();
    struct weir_shrinker bad = {}, good = {};
    bad.name = "bad", bad.count = count, bad.scan = throws;
    good.name = "good", good.count = count, good.scan = scan;
    weir_callback *first = p_shrinker_register(&bad, sizeof bad), *second = p_shrinker_register(&good, sizeof good);
    CHECK(first && second);
    set("limit", 1 << 20);
    WAIT_FOR(calls > 0 && scans > 3);
    struct weir_callback_stats stats;
    CHECK(p_callback_stats(first, &stats, sizeof stats) == 0 && stats.is_disabled);
    CHECK(calls == 1 && scans > 3);
    CHECK(p_unregister(first) == 0 && p_unregister(second) == 0);
    return 0;
}
