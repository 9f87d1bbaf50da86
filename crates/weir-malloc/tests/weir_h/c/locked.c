/* A locked zone that the kernel refuses (ulimit -l) takes nothing from caches: they make room for one that can be. */
#include "check.h"

#include <sys/resource.h>
#include "weir.h"

NAMED(zone_create) NAMED(evictable_create) NAMED(evictable_prepare)
NAMED(evictable_value) NAMED(evictable_publish) NAMED(evictable_release) NAMED(evictable_stats)

enum { MIB = 1 << 20, VALUE = 65000 };

static struct weir_evictable_stats stats_of(weir_evictable *cache) {
    struct weir_evictable_stats stats;
    CHECK(p_evictable_stats(cache, &stats, sizeof stats) == 0);
    return stats;
}

/* A cache of `bytes` or a little less. */
static weir_evictable *filled(size_t bytes) {
    struct weir_evictable_options options = {.max_bytes = bytes};
    weir_evictable *cache = p_evictable_create(&options, sizeof options);
    CHECK(cache);
    for (int key = 0; key < (int)(bytes / VALUE); key++) {
        weir_entry *entry = p_evictable_prepare(cache, &key, sizeof key, VALUE);
        CHECK(entry);
        memset(p_evictable_value(cache, entry, NULL), 1, VALUE);
        CHECK(p_evictable_publish(cache, entry) == 0);
        p_evictable_release(cache, entry);
    }
    return cache;
}

int main(void) {
    if (!p_zone_create && !is_weir()) skip_all("it is of Weir's own");
    struct rlimit little = {64 << 10, 64 << 10};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &little) == 0);
    /* Root may lock beyond the limit. */
    if (geteuid() == 0 && setuid(65534) != 0) skip_all("setuid has no effect");
    set("hard_limit", 128 * MIB);
    weir_evictable *cache = filled(80 * MIB);
    size_t before = stats_of(cache).bytes;
    CHECK(before > 70 * MIB);
    CHECK(!p_zone_create(WEIR_ZONE_LOCKED, 100 * MIB, -1) && errno == EAGAIN);
    CHECK(stats_of(cache).bytes == before && stats_of(cache).evicted_for_pressure == 0);
    return 0;
}
