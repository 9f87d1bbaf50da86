/* Thousands of short threads, whose destructors allocate and free, some after every other destructor has run. */
#include "check.h"

enum { KEYS = 100, AT_ONCE = 24, ROUNDS = 150 };
static pthread_key_t keys[KEYS];
static pthread_key_t again;
static int destroyed;

static void destroy(void *block) {
    CHECK(holds(block, 100, 7));
    free(block);
    free(malloc(333));
    __atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED);
}

/* Sets itself again until the last round of destructors: its frees come after all others'. */
static void destroy_last(void *value) {
    uintptr_t *count = value;
    free(calloc(1, 5000));
    if (++*count < 4) CHECK(pthread_setspecific(again, count) == 0);
    else free(count);
}

static void *live(void *handed) {
    /* Keys above 31 make libc allocate their table, with our malloc, in the thread's own name. */
    for (int i = 0; i < KEYS; i++) {
        void *block = malloc(100);
        fill(block, 100, 7);
        CHECK(pthread_setspecific(keys[i], block) == 0);
    }
    uintptr_t *count = calloc(1, sizeof *count);
    CHECK(pthread_setspecific(again, count) == 0);
    if (handed) CHECK(holds(handed, 5000, 8)), free(handed);
    void *passed = malloc(5000);
    fill(passed, 5000, 8);
    return passed;
}

int main(void) {
    alarm(LIFETIME);
    for (int i = 0; i < KEYS; i++) CHECK(pthread_key_create(&keys[i], destroy) == 0);
    CHECK(pthread_key_create(&again, destroy_last) == 0);
    void *passed[AT_ONCE] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) CHECK(pthread_create(&thread[i], NULL, live, passed[i]) == 0);
        for (int i = 0; i < AT_ONCE; i++) CHECK(pthread_join(thread[AT_ONCE - 1 - i], &passed[i]) == 0);
    }
    for (int i = 0; i < AT_ONCE; i++) free(passed[i]);
    CHECK(destroyed == KEYS * AT_ONCE * ROUNDS);
    return 0;
}
