/* Arguments of weir.h's caches and zones that cannot be: refused with errno, and nothing else happens. */
#include "check.h"

#include <sys/mman.h>
#include "weir.h"

NAMED(cache_create) NAMED(cache_destroy) NAMED(cache_alloc) NAMED(cache_alloc_arg) NAMED(cache_free)
NAMED(cache_alloc_batch) NAMED(cache_free_batch) NAMED(cache_set_limit) NAMED(cache_set_move)
NAMED(cache_set_reserve) NAMED(cache_stats) NAMED(cache_next) NAMED(zone_create) NAMED(zone_destroy)
NAMED(zone_alloc) NAMED(zone_free) NAMED(zone_offline) NAMED(zone_online) NAMED(zone_base)
NAMED(zone_usage) NAMED(usage)

#define REFUSED(call, failed, why) (errno = 0, CHECK((call) == (failed)), CHECK(errno == (why)))

enum { PAGE = 4096, MIB = 1 << 20 };

static int never(void *from, void *to, size_t size, void *argument) {
    (void)from, (void)to, (void)size, (void)argument;
    return 0;
}

static void caches(void) {
    struct weir_cache_stats stats = {.number = 0};
    void *objects[4];
    REFUSED(p_cache_create("c", 0, 0, NULL, NULL, NULL, NULL, 0), NULL, EINVAL);
    REFUSED(p_cache_create("c", (size_t)-1, 0, NULL, NULL, NULL, NULL, WEIR_CACHE_LIMITED), NULL, EINVAL);
    REFUSED(p_cache_create("c", 8, 3, NULL, NULL, NULL, NULL, 0), NULL, EINVAL);
    REFUSED(p_cache_create("c", 8, (size_t)-1, NULL, NULL, NULL, NULL, WEIR_CACHE_LIMITED), NULL, EINVAL);
    REFUSED(p_cache_create("c", 8, 0, NULL, NULL, NULL, NULL, 16), NULL, EINVAL);
    REFUSED(p_cache_alloc(NULL), NULL, EINVAL);
    REFUSED(p_cache_alloc_arg(NULL, objects), NULL, EINVAL);
    REFUSED(p_cache_alloc_batch(NULL, objects, 4), 0, EINVAL);
    REFUSED(p_cache_set_limit(NULL, 1), -1, EINVAL);
    REFUSED(p_cache_set_move(NULL, never, NULL), -1, EINVAL);
    REFUSED(p_cache_set_reserve(NULL, 1), -1, EINVAL);
    REFUSED(p_cache_stats(NULL, &stats, sizeof stats), -1, EINVAL);
    REFUSED(p_cache_next(NULL, sizeof stats), -1, EINVAL);
    REFUSED(p_cache_destroy(NULL), 0, 0);
    p_cache_free(NULL, NULL);
    p_cache_free_batch(NULL, NULL, 0);
    REFUSED(p_cache_alloc_batch(NULL, NULL, 0), 0, 0);

    weir_cache *cache = p_cache_create(NULL, 8, 0, NULL, NULL, NULL, NULL, 0);
    CHECK(cache);
    REFUSED(p_cache_alloc_batch(cache, NULL, 4), 0, EINVAL);
    REFUSED(p_cache_stats(cache, NULL, sizeof stats), -1, EINVAL);
    REFUSED(p_cache_stats(cache, &stats, 0), -1, EINVAL);
    REFUSED(p_cache_set_limit(cache, 1), -1, EINVAL);
    REFUSED(p_cache_set_move(cache, NULL, NULL), -1, EINVAL);
    REFUSED(p_cache_set_move(cache, never, NULL), 0, 0);
    REFUSED(p_cache_set_move(cache, never, NULL), -1, EINVAL);
    void *object = p_cache_alloc(cache);
    REFUSED(p_cache_destroy(cache), -1, EBUSY);
    /* Without a dtor and a limit, free() is the cache's own. */
    free(object);
    CHECK(p_cache_stats(cache, &stats, sizeof stats) == 0 && stats.used == 0);
    REFUSED(p_cache_destroy(cache), 0, 0);
}

static void zones(void) {
    struct weir_zone_usage usage;
    for (size_t length = 0; length < 2 * MIB; length += MIB / 2)
        REFUSED(p_zone_create(WEIR_ZONE_ANONYMOUS, length, -1), NULL, EINVAL);
    REFUSED(p_zone_create(WEIR_ZONE_ANONYMOUS, (size_t)-1 / (2 * MIB) * (2 * MIB), -1), NULL, EINVAL);
    REFUSED(p_zone_create(4, 2 * MIB, -1), NULL, EINVAL);
    REFUSED(p_zone_create(WEIR_ZONE_MEMFD, 2 * MIB, -1), NULL, EBADF);
    REFUSED(p_zone_alloc(NULL, PAGE, 0), NULL, EINVAL);
    REFUSED(p_zone_free(NULL, &usage, PAGE), -1, EINVAL);
    REFUSED(p_zone_free(NULL, NULL, PAGE), 0, 0);
    REFUSED(p_zone_offline(NULL, 0, 2 * MIB), -1, EINVAL);
    REFUSED(p_zone_online(NULL, 0, 2 * MIB), -1, EINVAL);
    REFUSED(p_zone_base(NULL), NULL, EINVAL);
    REFUSED(p_zone_usage(NULL, &usage, sizeof usage), -1, EINVAL);
    REFUSED(p_zone_destroy(NULL), 0, 0);
    REFUSED(p_usage(NULL, 8), -1, EINVAL);

    weir_zone *zone = p_zone_create(WEIR_ZONE_ANONYMOUS, 4 * MIB, -1);
    CHECK(zone);
    REFUSED(p_zone_alloc(zone, 0, 0), NULL, EINVAL);
    REFUSED(p_zone_alloc(zone, 4 * MIB + 1, 0), NULL, EINVAL);
    REFUSED(p_zone_alloc(zone, PAGE, 3 * PAGE), NULL, EINVAL);
    REFUSED(p_zone_alloc(zone, PAGE, 8 * MIB), NULL, EINVAL);
    REFUSED(p_zone_usage(zone, NULL, sizeof usage), -1, EINVAL);
    REFUSED(p_zone_usage(zone, &usage, 0), -1, EINVAL);
    REFUSED(p_zone_offline(zone, 0, 0), -1, EINVAL);
    REFUSED(p_zone_offline(zone, MIB, 2 * MIB), -1, EINVAL);
    REFUSED(p_zone_offline(zone, 2 * MIB, 4 * MIB), -1, EINVAL);
    REFUSED(p_zone_offline(zone, 2 * MIB, (size_t)-1), -1, EINVAL);
    REFUSED(p_zone_online(zone, 4 * MIB, 2 * MIB), -1, EINVAL);

    /* Only a whole run is freed; what is refused stays in use, so that no page is lost. */
    char *run = p_zone_alloc(zone, 5 * PAGE, 0), *next = p_zone_alloc(zone, 3 * PAGE - 100, 0);
    CHECK(run && next);
    memset(run, 1, 5 * PAGE), memset(next, 2, 3 * PAGE - 100);
    for (size_t size = 0; size <= 9 * PAGE; size += PAGE / 2)
        if ((size + PAGE - 1) / PAGE != 5) REFUSED(p_zone_free(zone, run, size), -1, EINVAL);
    REFUSED(p_zone_free(zone, run, (size_t)-1), -1, EINVAL);
    REFUSED(p_zone_free(zone, run + PAGE, 4 * PAGE), -1, EINVAL);
    REFUSED(p_zone_free(zone, run + 1, 5 * PAGE), -1, EINVAL);
    REFUSED(p_zone_free(zone, &usage, PAGE), -1, EINVAL);
    REFUSED(p_zone_free(zone, (char *)p_zone_base(zone) + 4 * MIB, PAGE), -1, EINVAL);
    REFUSED(p_zone_free(zone, (char *)p_zone_base(zone) - PAGE, PAGE), -1, EINVAL);
    CHECK(p_zone_usage(zone, &usage, sizeof usage) == 0 && usage.used_bytes == 8 * PAGE);
    for (int i = 0; i < 5 * PAGE; i++) CHECK(run[i] == 1);
    REFUSED(p_zone_destroy(zone), -1, EBUSY);
    /* The size is what was asked for, or any that needs as many pages. */
    REFUSED(p_zone_free(zone, run, 5 * PAGE), 0, 0);
    REFUSED(p_zone_free(zone, run, 5 * PAGE), -1, EINVAL);
    REFUSED(p_zone_free(zone, next, 3 * PAGE - 100), 0, 0);
    REFUSED(p_zone_destroy(zone), 0, 0);
}

int main(void) {
    if (!is_weir()) skip_all("it is of Weir's own");
    caches();
    zones();
    return 0;
}
