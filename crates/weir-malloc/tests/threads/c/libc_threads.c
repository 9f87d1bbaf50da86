/* What C libraries do differently: threads that end joined and detached, and forks while others allocate. It also tells what
 * a malloc and a free take, which shows whether the fast path is on. Run by .ci/libcs on several of them. */
#include "check.h"

enum { THREADS = 20000, FORKS = 200, PAIRS = 3000000 };
static int is_over;

static void *short_life(void *argument) {
    char *block = malloc(100);
    fill(block, 100, 3);
    CHECK(holds(block, 100, 3));
    free(block);
    return argument;
}

static void *replace(void *argument) {
    void *block[256] = {0};
    unsigned random = (unsigned)(uintptr_t)argument;
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        random = random * 1103515245 + 12345;
        unsigned i = random >> 16 & 255;
        free(block[i]);
        size_t size = (random >> 8) % 9000 + 1;
        block[i] = malloc(size);
        memset(block[i], 1, size < 16 ? size : 16);
    }
    for (int i = 0; i < 256; i++) free(block[i]);
    return NULL;
}

static void forks(void) {
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&thread[i], NULL, replace, (void *)(i + 1)) == 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (int k = 0; k < 2000; k++) free(memset(malloc(k * 13 + 1), 2, k * 13 + 1));
            _exit(7);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(thread[i], NULL) == 0);
}

static void *pairs(void *argument) {
    void *block[64] = {0};
    unsigned random = 1;
    struct timespec begin, end;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin) == 0);
    for (int i = 0; i < PAIRS; i++) {
        random = random * 1103515245 + 12345;
        unsigned k = random >> 16 & 63;
        free(block[k]);
        block[k] = malloc(64);
    }
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end) == 0);
    for (int i = 0; i < 64; i++) free(block[i]);
    *(double *)argument = ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / PAIRS;
    return NULL;
}

int main(void) {
    alarm(LIFETIME);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, short_life, NULL) == 0);
        CHECK((i & 1 ? pthread_join(thread, NULL) : pthread_detach(thread)) == 0);
    }
    forks();
    double own, other;
    pairs(&own);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, pairs, &other) == 0 && pthread_join(thread, NULL) == 0);
    printf("pair: %.1f and %.1f ns\n", own, other);
    return 0;
}
