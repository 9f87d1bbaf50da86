/* weir.h's evictable caches, by their contract. Under another malloc there are none: then there is nothing to check. */
#include "check.h"

#include <sys/resource.h>
#include "weir.h"

NAMED(evictable_create) NAMED(evictable_destroy) NAMED(evictable_get) NAMED(evictable_prepare)
NAMED(evictable_publish) NAMED(evictable_cancel) NAMED(evictable_release) NAMED(evictable_key)
NAMED(evictable_value) NAMED(evictable_remove) NAMED(evictable_clear) NAMED(evictable_evict)
NAMED(evictable_relieved) NAMED(evictable_set_max) NAMED(evictable_stats) NAMED(zone_create)
NAMED(zone_destroy) NAMED(zone_usage)

static weir_evictable *made(const struct weir_evictable_options *options) {
    weir_evictable *cache = p_evictable_create(options, sizeof *options);
    CHECK(cache);
    return cache;
}

static struct weir_evictable_stats stats_of(weir_evictable *cache) {
    struct weir_evictable_stats stats;
    CHECK(p_evictable_stats(cache, &stats, sizeof stats) == 0);
    return stats;
}

/* Puts `size` bytes of a pattern in, pinned. */
static weir_entry *put(weir_evictable *cache, uint64_t key, size_t size) {
    weir_entry *entry = p_evictable_prepare(cache, &key, sizeof key, size);
    if (!entry) return NULL;
    size_t len;
    unsigned char *value = p_evictable_value(cache, entry, &len);
    CHECK(len == size && (uintptr_t)value % 16 == 0);
    for (size_t i = 0; i < size; i++) CHECK(value[i] == 0), value[i] = pattern(key, i);
    if (p_evictable_publish(cache, entry) == 0) return entry;
    int why = errno;
    CHECK(p_evictable_value(cache, entry, NULL) == value && value[size - 1] == pattern(key, size - 1));
    p_evictable_cancel(cache, entry);
    errno = why;
    return NULL;
}

static void check(weir_evictable *cache, weir_entry *entry, uint64_t key, size_t size) {
    size_t len, key_len;
    const unsigned char *value = p_evictable_value(cache, entry, &len);
    const void *found = p_evictable_key(cache, entry, &key_len);
    CHECK(len == size && key_len == sizeof key && memcmp(found, &key, sizeof key) == 0);
    for (size_t i = 0; i < size; i++) CHECK(value[i] == pattern(key, i));
}

static void life(weir_zone *zone, unsigned flags) {
    struct weir_evictable_options options = {
        .name = "blocks", .max_bytes = 1 << 20, .zone = zone, .flags = flags, .miss_ns = 10000000};
    weir_evictable *cache = made(&options);
    for (uint64_t key = 0; key < 2000; key++) {
        size_t size = 1 + key % 5000;
        weir_entry *entry = put(cache, key, size);
        CHECK(entry && stats_of(cache).bytes <= 1 << 20);
        check(cache, entry, key, size);
        p_evictable_release(cache, entry);
    }
    size_t hits = 0;
    for (uint64_t key = 0; key < 2000; key++) {
        weir_entry *entry = p_evictable_get(cache, &key, sizeof key);
        if (!entry) {
            CHECK(errno == ENOENT);
            continue;
        }
        hits++;
        check(cache, entry, key, 1 + key % 5000);
        p_evictable_release(cache, entry);
    }
    struct weir_evictable_stats stats = stats_of(cache);
    CHECK(hits == stats.hits && hits == stats.entries && stats.misses == 2000 - hits && hits > 150);
    /* What is refused for its weight was the program's alone; where bytes count nothing is. */
    CHECK(stats.insertions + stats.rejected == 2000 && stats.evicted_for_room == stats.insertions - hits);
    CHECK(stats.max_bytes == 1 << 20 && (!(flags & WEIR_EVICTABLE_FAVOUR_BYTES) || stats.rejected == 0));
    /* Pinned, removed, and still there. */
    weir_entry *entry = put(cache, 5, 100), *second = p_evictable_get(cache, &(uint64_t){5}, 8);
    CHECK(entry == second && p_evictable_remove(cache, &(uint64_t){5}, 8) == 0);
    CHECK(p_evictable_remove(cache, &(uint64_t){5}, 8) == -1 && errno == ENOENT);
    CHECK(!p_evictable_get(cache, &(uint64_t){5}, 8));
    p_evictable_release(cache, second);
    check(cache, entry, 5, 100);
    CHECK(p_evictable_destroy(cache) == -1 && errno == EBUSY);
    p_evictable_release(cache, entry);
    entry = p_evictable_prepare(cache, "x", 1, 10);
    CHECK(p_evictable_destroy(cache) == -1 && errno == EBUSY);
    p_evictable_cancel(cache, entry);
    /* Too large: refused, and all but the key's former entry stays. */
    p_evictable_release(cache, put(cache, 7, 100));
    CHECK(!put(cache, 7, 2 << 20) && errno == EFBIG && stats_of(cache).entries > 100);
    CHECK(!p_evictable_get(cache, &(uint64_t){7}, 8) && errno == ENOENT);
    size_t held = stats_of(cache).bytes;
    CHECK(p_evictable_evict(cache, held / 2) >= held / 2 && stats_of(cache).bytes <= held - held / 2);
    for (uint64_t key = 0; key < 500; key++) p_evictable_release(cache, put(cache, key, 3000));
    CHECK(stats_of(cache).bytes <= held - held / 2);
    p_evictable_relieved(cache);
    for (uint64_t key = 0; key < 500; key++) p_evictable_release(cache, put(cache, key, 3000));
    CHECK(stats_of(cache).bytes > held - held / 2);
    CHECK(p_evictable_set_max(cache, 100000) == 0 && stats_of(cache).bytes <= 100000);
    CHECK(p_evictable_clear(cache) == 0 && stats_of(cache).entries == 0);
    CHECK(p_evictable_destroy(cache) == 0);
}

static unsigned told[5];

static void on_evict(void *data, const void *key, size_t key_size, const void *value, size_t size, unsigned cause) {
    CHECK(data == told && key && key_size == 8 && value && size >= 8 && cause <= WEIR_EVICTED_REJECTED);
    told[cause]++;
}

/* The callback is told of each entry that leaves, and why. */
static void leaving(void) {
    struct weir_evictable_options options = {.max_bytes = 64 << 10, .on_evict = on_evict, .data = told};
    weir_evictable *cache = made(&options);
    for (uint64_t key = 0; key < 300; key++) p_evictable_release(cache, put(cache, key, 1000));
    size_t left = stats_of(cache).entries;
    CHECK(told[WEIR_EVICTED_FOR_ROOM] == 300 - left && left > 20);
    p_evictable_release(cache, put(cache, 299, 1000));
    CHECK(told[WEIR_EVICTED_REPLACED] == 1);
    CHECK(!put(cache, 1, 64 << 10) && p_evictable_remove(cache, &(uint64_t){299}, 8) == 0);
    /* The key of the refused one may have had an entry, which it was to replace. */
    CHECK(p_evictable_destroy(cache) == 0);
    CHECK(told[WEIR_EVICTED_REMOVED] + told[WEIR_EVICTED_REPLACED] - 1 == left && told[WEIR_EVICTED_REPLACED] <= 2);
}

static weir_evictable *doomed;
static int refusals;

static void destroy(void *data, const void *key, size_t key_size, const void *value, size_t size, unsigned cause) {
    /* As the cache itself is destroyed it may be as far as that. */
    if (!doomed) return;
    CHECK(p_evictable_destroy(doomed) == -1 && errno == EBUSY);
    refusals++;
}

/* The cache is not destroyed by the callback of a call that goes on with it. Each call has told it of something. */
static void destroyed_by_its_callback(void) {
    struct weir_evictable_options options = {.max_bytes = 8 << 20, .shards = 4, .on_evict = destroy};
    doomed = made(&options);
    for (uint64_t key = 0; key < 1000; key++) p_evictable_release(doomed, put(doomed, key, 1000));
    CHECK(p_evictable_remove(doomed, &(uint64_t){1}, 8) == 0 && refusals == 1);
    CHECK(p_evictable_evict(doomed, 10000) >= 10000 && refusals > 1);
    p_evictable_relieved(doomed);
    int before = refusals;
    CHECK(p_evictable_set_max(doomed, 300000) == 0 && refusals > before + 100);
    before = refusals;
    /* Other shards make room for it: it is more than one's part. */
    for (uint64_t key = 0; key < 8; key++) p_evictable_release(doomed, put(doomed, 2000 + key, 200000));
    CHECK(refusals > before);
    before = refusals;
    CHECK(p_evictable_clear(doomed) == 0 && refusals > before);
    weir_evictable *cache = doomed;
    doomed = NULL;
    CHECK(p_evictable_destroy(cache) == 0);
}

static void *reader(void *cache) {
    for (uint64_t i = 0; i < 6000; i++) {
        uint64_t key = i * i % 100;
        weir_entry *entry = p_evictable_get(cache, &key, sizeof key);
        if (!entry) entry = put(cache, key, 64 + key);
        CHECK(entry);
        check(cache, entry, key, 64 + key);
        p_evictable_release(cache, entry);
    }
    return NULL;
}

/* A child finds the cache whole, whatever the parent's threads were at. */
static void forks(void) {
    struct weir_evictable_options options = {.max_bytes = 8 << 10, .shards = 2};
    weir_evictable *cache = made(&options);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, reader, cache) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(PATIENCE);
            reader(cache);
            struct weir_evictable_stats stats = stats_of(cache);
            CHECK(stats.bytes <= 8 << 10 && stats.entries > 10);
            p_evictable_clear(cache);
            CHECK(stats_of(cache).bytes == 0 && stats_of(cache).entries == 0);
            _exit(0);
        }
        CHECK(ends_well(child));
    }
    for (int i = 0; i < 3; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(p_evictable_destroy(cache) == 0);
}

/* 300 kB by this key. */
static void insert(weir_evictable *cache, uint64_t key) {
    weir_entry *entry = p_evictable_prepare(cache, &key, sizeof key, 300000);
    /* While memory is short the cache may hold less than this entry: it grows again afterwards. */
    if (!entry && errno == EFBIG)
        WAIT_FOR((entry = p_evictable_prepare(cache, &key, sizeof key, 300000)) || errno != EFBIG);
    CHECK(entry && p_evictable_publish(cache, entry) == 0);
    memset(p_evictable_value(cache, entry, NULL), (int)key, 16);
    p_evictable_release(cache, entry);
}

/* Where memory ends, entries make room for others, and nothing fails. */
static void limited(void) {
    pid_t child = fork();
    if (child == 0) {
        weir_evictable *cache = p_evictable_create(NULL, 0);
        CHECK(cache);
        FILE *file = fopen("/proc/self/statm", "r");
        size_t pages = 0;
        CHECK(file && fscanf(file, "%zu", &pages) == 1);
        fclose(file);
        struct rlimit limit;
        for (int i = 0; i < 2; i++) {
            int which = i ? RLIMIT_AS : RLIMIT_DATA;
            CHECK(getrlimit(which, &limit) == 0);
            limit.rlim_cur = pages * 4096 + (64 << 20);
            if (limit.rlim_cur < limit.rlim_max) CHECK(setrlimit(which, &limit) == 0);
        }
        for (uint64_t key = 0; key < 6000; key++) insert(cache, key);
        struct weir_evictable_stats stats = stats_of(cache);
        CHECK(stats.entries < 5000);
        CHECK(stats.evicted_for_room + stats.evicted_for_pressure + stats.entries == 6000);
        /* Where the machine is short of memory it holds few, and more again when that is over. */
        uint64_t key = 6000;
        WAIT_FOR(stats_of(cache).entries > 20 || (insert(cache, key++), 0));
        CHECK(p_evictable_destroy(cache) == 0);
        _exit(0);
    }
    CHECK(ends_well(child));
}

/* A cache larger than its zone goes on on the heap. */
static void zone_first(void) {
    weir_zone *zone = p_zone_create(WEIR_ZONE_ANONYMOUS, 4 << 20, -1);
    CHECK(zone);
    struct weir_evictable_options options = {.max_bytes = 16 << 20, .zone = zone, .flags = 4};
    CHECK(!p_evictable_create(&options, sizeof options) && errno == EINVAL);
    options.flags = WEIR_EVICTABLE_ZONE_FIRST;
    weir_evictable *cache = made(&options);
    for (uint64_t key = 0; key < 1500; key++) p_evictable_release(cache, put(cache, key, 8000));
    struct weir_zone_usage usage;
    CHECK(p_zone_usage(zone, &usage, sizeof usage) == 0);
    CHECK(usage.used_bytes > 2 << 20 && usage.used_bytes < 4 << 20);
    CHECK(stats_of(cache).bytes > 8 << 20);
    for (uint64_t key = 0; key < 1500; key++) {
        weir_entry *entry = p_evictable_get(cache, &key, sizeof key);
        if (entry) check(cache, entry, key, 8000), p_evictable_release(cache, entry);
    }
    CHECK(p_evictable_destroy(cache) == 0 && p_zone_destroy(zone) == 0);
    options.zone = NULL;
    CHECK(!p_evictable_create(&options, sizeof options) && errno == EINVAL);
}

/* Where memory is not heard to be short, no bound is one of 256 MiB: for a cache that is there, and once it is lifted. */
static void unheard(void) {
    weir_evictable *cache = p_evictable_create(NULL, 0);
    CHECK(cache && stats_of(cache).max_bytes == SIZE_MAX);
    set("background", 0);
    CHECK(stats_of(cache).max_bytes == 256 << 20);
    CHECK(p_evictable_set_max(cache, 1000) == 0 && stats_of(cache).max_bytes == 1000);
    CHECK(p_evictable_set_max(cache, 0) == 0 && stats_of(cache).max_bytes == 256 << 20);
    CHECK(!p_evictable_prepare(cache, "a", 1, 256 << 20) && errno == EFBIG);
    set("background", 1);
    CHECK(stats_of(cache).max_bytes == SIZE_MAX && p_evictable_destroy(cache) == 0);
}

int main(void) {
    if (!p_evictable_create && !is_weir()) skip_all("it is of Weir's own");
    CHECK(!p_evictable_get(NULL, "a", 1) && errno == EINVAL);
    ignore_stalls();
    CHECK(p_evictable_destroy(NULL) == 0 && p_evictable_evict(NULL, 1) == 0);
    weir_evictable *cache = p_evictable_create(NULL, 0);
    CHECK(cache && !p_evictable_get(cache, NULL, 1) && errno == EINVAL);
    weir_entry *empty = p_evictable_prepare(cache, NULL, 0, 0);
    CHECK(empty && p_evictable_publish(cache, empty) == 0);
    p_evictable_release(cache, empty);
    CHECK(!p_evictable_prepare(cache, "a", 1, SIZE_MAX - 20) && errno == EFBIG);
    CHECK(!p_evictable_prepare(cache, "a", 1, (size_t)1 << 55) && errno == ENOMEM);
    CHECK((empty = p_evictable_get(cache, NULL, 0)) || errno == ENOENT);
    p_evictable_release(cache, empty);
    CHECK(p_evictable_destroy(cache) == 0);
    /* A program that was compiled when the options ended before the last. */
    struct weir_evictable_options older = {.name = "older"};
    cache = p_evictable_create(&older, offsetof(struct weir_evictable_options, miss_ns));
    CHECK(cache && p_evictable_destroy(cache) == 0);
    life(NULL, 0);
    life(NULL, WEIR_EVICTABLE_FAVOUR_BYTES);
    weir_zone *zone = p_zone_create(WEIR_ZONE_ANONYMOUS, 4 << 20, -1);
    CHECK(zone);
    life(zone, 0);
    life(zone, WEIR_EVICTABLE_FAVOUR_BYTES);
    CHECK(p_zone_destroy(zone) == 0);
    zone_first();
    leaving();
    destroyed_by_its_callback();
    unheard();
    forks();
    limited();
    return 0;
}
