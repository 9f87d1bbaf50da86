/* A cache whose objects Weir may move. Under another malloc there are none: then there is nothing to check. */
#include "check.h"

#include "weir.h"

#include <fcntl.h>

enum { SIZE = 240, MANY = 60000, KEEP = 16, SLOTS = 1 << 17 };

NAMED(cache_create) NAMED(cache_destroy) NAMED(cache_alloc) NAMED(cache_free) NAMED(cache_set_limit)
NAMED(cache_set_move) NAMED(cache_stats) NAMED(trim)

/* The program's objects by address, and what each holds. A slot whose object has gone keeps its place. */
struct slot {
    void *object;
    uint64_t number;
};
static struct slot table[SLOTS];
static int used, asked, moved;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char gone;
static weir_cache *cache;

static struct slot *find(const void *object) {
    size_t i = ((uintptr_t)object >> 4) * 0x9e3779b97f4a7c15u >> 47;
    while (table[i].object && table[i].object != object) i = (i + 1) % SLOTS;
    return &table[i];
}

static void enter(void *object, uint64_t number) {
    CHECK(used++ < SLOTS / 4 * 3);
    *find(object) = (struct slot){object, number};
}

static int move(void *from, void *to, size_t size, void *argument) {
    CHECK(size == SIZE);
    CHECK(argument == table);
    CHECK(from != to);
    CHECK(aligned(to, 16));
    __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
    free(malloc(100)); /* it may allocate */
    pthread_mutex_lock(&lock);
    struct slot *slot = find(from);
    int may_move = slot->object == from && slot->number % 100 != 0;
    if (may_move) {
        CHECK(holds(from, SIZE, slot->number));
        memcpy(to, from, size);
        memset(from, 0xee, size);
        uint64_t number = slot->number;
        slot->object = &gone;
        enter(to, number);
        __atomic_add_fetch(&moved, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&lock);
    return may_move;
}

static struct weir_cache_stats stats_of(weir_cache *cache) {
    struct weir_cache_stats stats;
    CHECK(p_cache_stats(cache, &stats, sizeof stats) == 0);
    return stats;
}

/* Bytes of the process that are resident. It allocates nothing, which would be activity. */
static size_t resident(void) {
    static char text[64];
    size_t size = 0, pages = 0;
    int statm = open("/proc/self/statm", O_RDONLY);
    CHECK(statm >= 0);
    CHECK(read(statm, text, sizeof text - 1) > 0 && sscanf(text, "%zu %zu", &size, &pages) == 2);
    close(statm);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Frees all objects but one in `keep`, all where that is 0; returns how many are left. Nothing moves meanwhile. */
static int thin(uint64_t keep) {
    static uint64_t random = 88172645463325252u;
    int left = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SLOTS; i++) {
        void *object = table[i].object;
        if (!object || object == &gone) continue;
        CHECK(holds(object, SIZE, table[i].number));
        if (keep && next_random(&random) % keep == 0) {
            left++;
            continue;
        }
        table[i].object = &gone;
        p_cache_free(cache, object);
    }
    pthread_mutex_unlock(&lock);
    return left;
}

static void dtor(void *object, size_t size, void *argument) { memset(object, 0x99, size); }

static void round_of(weir_cache_dtor *end, unsigned flags) {
    memset(table, 1, sizeof table); /* resident from now on */
    memset(table, 0, sizeof table);
    size_t before = resident();
    used = asked = moved = 0;
    CHECK((cache = p_cache_create("moves", SIZE, 16, NULL, end, NULL, NULL, flags)) != NULL);
    CHECK(p_cache_set_move(cache, move, table) == 0);
    if (flags & WEIR_CACHE_LIMITED) CHECK(p_cache_set_limit(cache, MANY) == 0);
    for (uint64_t i = 0; i < MANY; i++) {
        void *object = p_cache_alloc(cache);
        CHECK(object != NULL);
        fill(object, SIZE, i);
        pthread_mutex_lock(&lock);
        enter(object, i);
        pthread_mutex_unlock(&lock);
    }
    size_t full = stats_of(cache).slab_bytes;
    CHECK(resident() > before + full / 2);
    int left = thin(KEEP);
    CHECK(left > MANY / KEEP / 2 && left < MANY / KEEP * 2);
    p_trim();
    /* How many slabs stay depends on who is first: the moves, or the release of free pages in slabs, after which fewer moves
       are worth it. The memory is the same. */
    WAIT_FOR(resident() < before + full / 5);
    CHECK(__atomic_load_n(&moved, __ATOMIC_RELAXED) > left / 4);
    /* A place that an object may move to counts as used, too. */
    WAIT_FOR(stats_of(cache).used == (size_t)left);
    CHECK(thin(1) == left);
    /* The end comes while objects may be asked. */
    p_trim();
    CHECK(thin(0) == 0);
    CHECK(p_cache_destroy(cache) == 0);
}

int main(void) {
    if (!is_weir()) return 0;
    round_of(NULL, 0);
    round_of(dtor, WEIR_CACHE_LIMITED);
    round_of(NULL, WEIR_CACHE_ZERO);
    return 0;
}
