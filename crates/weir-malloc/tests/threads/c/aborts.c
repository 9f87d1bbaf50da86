/* Threads that take one CPU from each other, in the middle of restartable sections too: no block is lost or has two owners. It
 * goes on until 100 sections were aborted, which the library counts in each thread. */
#include "check.h"
#include <sched.h>

enum { THREADS = 8, BLOCKS = 64, ENOUGH = 100, TLS_WORDS = 1 << 12 };
enum { NO_CPU = 1024, AREA_WORDS = 8, ABORTS_AT = 80 / 4 };
static long aborts[THREADS];
static int stop;

/* The library's thread-local block lies near the thread pointer. It begins as an area of no CPU, aligned to 32 bytes. */
static volatile uint32_t *thread_block(void) {
    static const uint32_t area[AREA_WORDS] = {NO_CPU, -1, 0, 0, 0, 0, NO_CPU, 0};
#ifdef __x86_64__
    long step = -AREA_WORDS; /* TLS is below the pointer there */
#else
    long step = AREA_WORDS;
#endif
    uint32_t *at = (uint32_t *)((uintptr_t)__builtin_thread_pointer() & ~(uintptr_t)31);
    for (int i = 0; i < TLS_WORDS / AREA_WORDS; i++, at += step)
        if (memcmp(at, area, sizeof area) == 0) return at;
    return NULL;
}

static void *churn(void *argument) {
    long thread = (long)argument;
    volatile uint32_t *block = thread_block();
    CHECK(block);
    unsigned char *blocks[BLOCKS] = {0};
    uint64_t random = thread * 77 + 1;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        for (int turn = 0; turn < 1000; turn++) {
            int i = next_random(&random) % BLOCKS;
            if (blocks[i]) CHECK(holds(blocks[i], 16, (uintptr_t)blocks[i] + thread));
            free(blocks[i]);
            CHECK(blocks[i] = malloc(16 + i / 16 * 16));
            fill(blocks[i], 16, (uintptr_t)blocks[i] + thread);
        }
        __atomic_store_n(&aborts[thread], block[ABORTS_AT], __ATOMIC_RELAXED);
    }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    return NULL;
}

static long all_aborts(void) {
    long sum = 0;
    for (int i = 0; i < THREADS; i++) sum += __atomic_load_n(&aborts[i], __ATOMIC_RELAXED);
    return sum;
}

int main(void) {
    alarm(LIFETIME);
    if (!is_weir()) skip_all("another library has no such block");
    const unsigned *registered = dlsym(RTLD_DEFAULT, "__rseq_size");
    if (!registered || *registered == 0) skip_all("this kernel or its libc has no restartable sequences");
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) skip_all("this user may not choose its CPU");
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, churn, (void *)i) == 0);
    WAIT_FOR(all_aborts() >= ENOUGH);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    printf("%ld aborts\n", all_aborts());
    return 0;
}
