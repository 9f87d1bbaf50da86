/* With WEIR_ZONE_CPUS=1: two threads that run at once take pages from a zone each. They allocate by turns, each spinning until it is
   its turn. From one zone their blocks lie in the same pageblocks of 2 MiB, as what was taken last is behind what was taken before.
   The kernel may give both threads the same index for a while, so that only one of all rounds has to show it. A value that is set
   while the process runs changes nothing. */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#include "weir.h"

NAMED(ctl)

enum { ROUNDS = 100, COUNT = 40, BYTES = 60000, PAGEBLOCK = 2 << 20, FEATURE_SIZE = 27, HAS_INDEX = 28 };
static int cpu_of[2];
static atomic_int turn;
static uintptr_t blocks[2][COUNT];

static void *allocate(void *argument) {
    int which = (int)(intptr_t)argument;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu_of[which], &one);
    CHECK(pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0);
    for (int i = 0; i < ROUNDS * COUNT; i++) {
        while (atomic_load(&turn) != 2 * i + which) {
        }
        char *block = malloc(BYTES);
        CHECK(block != NULL);
        block[0] = 1;
        blocks[which][i % COUNT] = (uintptr_t)block / PAGEBLOCK;
        if (which == 1 && i % COUNT == COUNT - 1) {
            int shared = 0;
            for (int a = 0; a < COUNT; a++)
                for (int b = 0; b < COUNT; b++) shared += blocks[0][a] == blocks[1][b];
            if (shared == 0) exit(0);
        }
        atomic_store(&turn, 2 * i + which + 1);
    }
    return NULL;
}

int main(void) {
    alarm(LIFETIME);
    cpu_set_t all;
    int found = 0;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET(cpu, &all)) cpu_of[found++] = cpu;
    if (found < 2) skip_all("one CPU");
    if (getauxval(FEATURE_SIZE) < HAS_INDEX) skip_all("the kernel does not number the threads that run");
    uint64_t one_for_all = 65536;
    CHECK(!p_ctl || p_ctl("zone_cpus", NULL, NULL, &one_for_all, sizeof one_for_all) == 0);
    pthread_t threads[2];
    for (intptr_t i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, allocate, (void *)i) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    fprintf(stderr, "in none of %d rounds had the threads a zone each\n", ROUNDS);
    return 1;
}
