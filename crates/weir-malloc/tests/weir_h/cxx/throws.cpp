/* A shrinker that throws a C++ exception is named and not called again; others are. */
#include "check.h"

#include "weir.h"

NAMED(shrinker_register) NAMED(unregister) NAMED(callback_stats)

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

int main() {
    if (!is_weir()) skip_all("it is of Weir's own");
    memset(malloc(30 << 20), 1, 30 << 20);
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
