/* A long churn leaves nothing behind. As much is live after it as before, for each size of blocks by itself, and in the end as little is resident. Two threads
 * allocate in every way, and each frees what the other allocated. If one free in a hundred were lost, it would be ten times of
 * what may differ. */
#include "check.h"
#include "weir.h"

enum { HELD = 500, LEAST_FREES = 4000, MIB = 1 << 20 };
/* Of each size so much is allocated and freed; a hundredth of it is what a leak of that part would leave. */
static const size_t CHURNED = 16 * MIB, LIVE_MAY_DIFFER = 16 * MIB / 100 / 10, RESIDENT_MAY_DIFFER = 3 * MIB;
static const size_t sizes[] = {24, 100, 1000, 3000, 20000, 100000, 1000000, 5 * MIB};

static pthread_barrier_t both;
static void *block[2][HELD];
static size_t size;
static int count, turns;

/* A block of `size` bytes by one of the ways to get one; a large one is not touched as a whole. */
static void *take(int way) {
    void *taken = NULL;
    switch (way % 5) {
    case 0: taken = calloc(1, size); break;
    case 1: taken = aligned_alloc(64, size); break;
    case 2: taken = realloc(malloc(size / 3), size); break;
    case 3: taken = realloc(malloc(size * 2), size); break;
    default: taken = malloc(size);
    }
    CHECK(taken);
    return memset(taken, way, size < 65536 ? size : 65536);
}

static void *churn(void *argument) {
    int me = (int)(intptr_t)argument;
    for (int turn = 0; turn < turns; turn++) {
        for (int i = 0; i < count; i++) block[me][i] = take(turn + i);
        pthread_barrier_wait(&both);
        for (int i = 0; i < count; i++) free(block[!me][i]);
        pthread_barrier_wait(&both);
    }
    return NULL;
}

static void in_two_threads(int wanted) {
    pthread_t other;
    turns = wanted;
    CHECK(pthread_create(&other, NULL, churn, (void *)1) == 0);
    churn(NULL);
    CHECK(pthread_join(other, NULL) == 0);
}

NAMED(usage)
static size_t live(void) {
    struct weir_usage usage = {0};
    CHECK(p_usage(&usage, sizeof usage) == 0);
    return usage.live_bytes;
}

int main(void) {
    alarm(LIFETIME);
    if (!is_weir()) skip_all("the figures are Weir's own");
    CHECK(pthread_barrier_init(&both, NULL, 2) == 0);
    size_t resident_before = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size = sizes[i];
        count = size > CHURNED / 4 / HELD ? CHURNED / 4 / size + 1 : HELD;
        in_two_threads(1); /* what the heap and libc keep for themselves is there from now on */
        malloc_trim(0);
        size_t before = live(), frees = CHURNED / size < LEAST_FREES ? LEAST_FREES : CHURNED / size;
        if (i == 0) resident_before = resident_bytes();
        in_two_threads(frees / (2 * count));
        size_t after = live();
        printf("%zu bytes: %zu live before %zu frees, %zu after\n", size, before, frees, after);
        fflush(stdout);
        CHECK(after < before + LIVE_MAY_DIFFER && before < after + LIVE_MAY_DIFFER);
    }
    malloc_trim(0);
    printf("%zu resident before, %zu after\n", resident_before, resident_bytes());
    fflush(stdout);
    CHECK(resident_bytes() < resident_before + RESIDENT_MAY_DIFFER);
    return 0;
}
