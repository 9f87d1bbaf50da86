/* weir.h's page pools. argv[1] is what is tested. Under another malloc there are none: then there is nothing to check. */
#include "check.h"

#include "weir.h"

NAMED(page_pool_create) NAMED(page_pool_destroy) NAMED(page_pool_get) NAMED(page_pool_get_batch)
NAMED(page_pool_put) NAMED(page_pool_put_batch) NAMED(page_pool_set_max_idle_pages)
NAMED(page_pool_set_squeeze_ms) NAMED(page_pool_tend) NAMED(page_pool_wait) NAMED(page_pool_stats)
NAMED(trim)

enum { PAGE = 4096 };

static struct weir_page_pool_stats stats_of(weir_page_pool *pool) {
    struct weir_page_pool_stats stats;
    CHECK(p_page_pool_stats(pool, &stats, sizeof stats) == 0);
    return stats;
}

static void fill_pool(weir_page_pool *pool, size_t count) {
    void **runs = malloc(count * sizeof *runs);
    CHECK(p_page_pool_get_batch(pool, 1, runs, count) == count);
    for (size_t i = 0; i < count; i++) memset(runs[i], 1, PAGE);
    p_page_pool_put_batch(pool, runs, count);
    free(runs);
}

static void life(void) {
    weir_page_pool *pool = p_page_pool_create("disk", 0);
    CHECK(pool && stats_of(pool).idle_pages == 0);
    char *run = p_page_pool_get(pool, 16);
    CHECK(run && aligned(run, PAGE) && stats_of(pool).in_flight_pages == 16 && stats_of(pool).misses == 1);
    fill(run, 16 * PAGE, 7);
    CHECK(p_page_pool_destroy(pool) == -1 && errno == EBUSY && holds(run, 16 * PAGE, 7));
    p_page_pool_put(pool, run);
    CHECK(stats_of(pool).idle_pages == 16 && stats_of(pool).in_flight_pages == 0);
    CHECK(p_page_pool_get(pool, 16) == run && stats_of(pool).gets == 2 && stats_of(pool).misses == 1);
    fill(run, 16 * PAGE, 9);
    void *runs[100];
    CHECK(p_page_pool_get_batch(pool, 3, runs, 100) == 100 && stats_of(pool).in_flight_pages == 316);
    for (int i = 0; i < 100; i++) memset(runs[i], i, 3 * PAGE);
    p_page_pool_put_batch(pool, runs, 100), p_trim();
    CHECK(stats_of(pool).idle_pages == 0 && stats_of(pool).squeezes == 0 && holds(run, 16 * PAGE, 9));
    p_page_pool_put(pool, run), p_page_pool_put(pool, NULL), p_page_pool_put(NULL, NULL);
    /* An empty array may be NULL. */
    p_page_pool_put_batch(pool, NULL, 0), errno = 0;
    CHECK(p_page_pool_get_batch(pool, 1, NULL, 0) == 0 && errno == 0);
    /* A caller of an older header has a shorter structure. */
    struct weir_page_pool_stats stats = {.gets = 99};
    CHECK(p_page_pool_stats(pool, &stats, 2 * sizeof(size_t)) == 0 && stats.idle_pages == 16 && stats.gets == 99);
    CHECK(p_page_pool_destroy(pool) == 0 && p_page_pool_destroy(NULL) == 0);
}

static void settings(void) {
    weir_page_pool *pool = p_page_pool_create(NULL, 0);
    fill_pool(pool, 3000);
    CHECK(stats_of(pool).idle_pages == 1024);
    set("max_idle_pages", 100), fill_pool(pool, 1);
    CHECK(stats_of(pool).idle_pages == 100);
    CHECK(p_page_pool_set_max_idle_pages(pool, 7) == 0), fill_pool(pool, 1);
    CHECK(stats_of(pool).idle_pages == 7);
    CHECK(p_page_pool_set_max_idle_pages(pool, WEIR_PAGE_POOL_COMMON) == 0), fill_pool(pool, 200);
    CHECK(stats_of(pool).idle_pages == 100);
    /* With a run in flight: not at once, but soon, by Weir's thread. */
    void *run = p_page_pool_get(pool, 1);
    fill_pool(pool, 500);
    WAIT_FOR(stats_of(pool).idle_pages <= 100);
    p_page_pool_put(pool, run);
    CHECK(stats_of(pool).squeezes == 0 && p_page_pool_destroy(pool) == 0);
}

static void refused(void) {
    CHECK(!p_page_pool_create("x", 6) && errno == EINVAL);
    weir_page_pool *pool = p_page_pool_create("x", WEIR_PAGE_POOL_TENDED);
    struct weir_page_pool_stats stats;
    void *runs[2];
#define REFUSED(call, answer) (errno = 0, (call) == (answer) && errno == EINVAL)
    CHECK(REFUSED(p_page_pool_get(pool, 0), NULL) && REFUSED(p_page_pool_get(pool, 1025), NULL));
    CHECK(REFUSED(p_page_pool_get(NULL, 1), NULL) && REFUSED(p_page_pool_get_batch(pool, 1, NULL, 2), 0));
    CHECK(REFUSED(p_page_pool_get_batch(pool, 2000, runs, 2), 0) && REFUSED(p_page_pool_tend(NULL), 0));
    CHECK(REFUSED(p_page_pool_set_max_idle_pages(NULL, 1), -1) && REFUSED(p_page_pool_set_squeeze_ms(NULL, 1), -1));
    CHECK(REFUSED(p_page_pool_set_squeeze_ms(pool, 3600001), -1) && REFUSED(p_page_pool_wait(NULL, 0), -1));
    CHECK(REFUSED(p_page_pool_stats(pool, NULL, 8), -1) && REFUSED(p_page_pool_stats(NULL, &stats, 8), -1));
    CHECK(REFUSED(p_page_pool_stats(pool, &stats, 0), -1) && p_page_pool_destroy(pool) == 0);
}

/* Pressure begins with a limit far below what is in use. */
static void squeezed(void) {
    weir_page_pool *pool = p_page_pool_create("disk", 0), *kept = p_page_pool_create("kept", 0);
    CHECK(p_page_pool_set_squeeze_ms(kept, 0) == 0);
    char *run = p_page_pool_get(pool, 64);
    fill(run, 64 * PAGE, 3);
    fill_pool(pool, 1000), fill_pool(kept, 1000);
    char *ballast = memset(malloc(8 << 20), 1, 8 << 20);
    set("limit", 1 << 20);
    WAIT_FOR(stats_of(pool).squeezes > 0 && stats_of(pool).idle_pages == 0);
    CHECK(stats_of(pool).squeezed_pages == 1000 && stats_of(pool).in_flight_pages == 64);
    CHECK(stats_of(kept).idle_pages == 1000 && stats_of(kept).squeezes == 0);
    CHECK(holds(run, 64 * PAGE, 3));
    set("limit", 0), free(ballast);
    p_page_pool_put(pool, run);
    CHECK(p_page_pool_destroy(pool) == 0 && p_page_pool_destroy(kept) == 0);
}

static void *own(void *pool) {
    while (p_page_pool_tend(pool) == 0) CHECK(p_page_pool_wait(pool, -1) == 0);
    return NULL;
}

static void tended(void) {
    weir_page_pool *pool = p_page_pool_create("ring", WEIR_PAGE_POOL_TENDED);
    fill_pool(pool, 1000);
    CHECK(p_page_pool_wait(pool, 1) == 0 && p_page_pool_tend(pool) == 0 && stats_of(pool).idle_pages == 1000);
    pthread_t owner;
    CHECK(pthread_create(&owner, NULL, own, pool) == 0);
    char *ballast = memset(malloc(8 << 20), 1, 8 << 20);
    set("limit", 1 << 20);
    CHECK(pthread_join(owner, NULL) == 0);
    CHECK(stats_of(pool).idle_pages == 0 && stats_of(pool).squeezed_pages == 1000 && stats_of(pool).squeezes == 1);
    set("limit", 0), free(ballast);
    CHECK(p_page_pool_destroy(pool) == 0);
}

static void forked(void) {
    weir_page_pool *pool = p_page_pool_create("disk", 0);
    char *run = p_page_pool_get(pool, 8);
    fill(run, 8 * PAGE, 5), fill_pool(pool, 100);
    pid_t child = fork();
    if (child == 0) {
        CHECK(stats_of(pool).idle_pages == 100 && holds(run, 8 * PAGE, 5));
        p_page_pool_put(pool, run), fill_pool(pool, 50), p_trim();
        CHECK(stats_of(pool).idle_pages == 0 && p_page_pool_destroy(pool) == 0);
        _exit(0);
    }
    CHECK(ends_well(child));
    CHECK(stats_of(pool).idle_pages == 100 && holds(run, 8 * PAGE, 5));
    p_page_pool_put(pool, run);
    CHECK(p_page_pool_destroy(pool) == 0);
}

static void wrong(const char *which) {
    weir_page_pool *pool = p_page_pool_create("disk", 0), *other = p_page_pool_create("other", 0);
    char *run = p_page_pool_get(pool, 2);
    if (!strcmp(which, "twice")) p_page_pool_put(pool, run), p_page_pool_put(pool, run);
    else if (!strcmp(which, "inside")) p_page_pool_put(pool, run + 1);
    else if (!strcmp(which, "foreign")) p_page_pool_put(other, run);
    else if (!strcmp(which, "by-free")) free(run);
    else if (!strcmp(which, "destroyed")) p_page_pool_destroy(other), p_page_pool_destroy(other);
    else CHECK(!"known");
    fprintf(stderr, "survived\n");
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    if (!p_page_pool_create && !is_weir()) skip_all("it is of Weir's own");
    ignore_stalls();
    if (!strcmp(argv[1], "life")) life();
    else if (!strcmp(argv[1], "settings")) settings();
    else if (!strcmp(argv[1], "refused")) refused();
    else if (!strcmp(argv[1], "squeezed")) squeezed();
    else if (!strcmp(argv[1], "tended")) tended();
    else if (!strcmp(argv[1], "forked")) forked();
    else wrong(argv[1]);
    return 0;
}
