/* Processes that libc's clone makes, out of one of one thread whose memory is being released, and out of one whose threads
   allocate all the time. argv[1]: how many of each. */
#include "../../common/check.h"
#include "../../common/tasks.h"
#include <sched.h>
#include <signal.h>

enum { BLOCKS = 48, SIZE = 1 << 20, STACK = 256 << 10, SHARING = 20, THREADS = 3 };
static volatile int stop;
static int answer;

static void burst(void) {
    static char *block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) CHECK(block[i] = malloc(SIZE)), memset(block[i], i, SIZE);
    for (int i = 0; i < BLOCKS; i++) free(block[i]);
}

static void small_ones(void) {
    enum { COUNT = 2000 };
    void *block[COUNT];
    for (int i = 0; i < COUNT; i++) CHECK(block[i] = malloc(i * 3)), fill(block[i], i * 3, i);
    for (int i = 0; i < COUNT; i++) CHECK(holds(block[i], i * 3, i)), free(block[i]);
}

/* All that wants the heap's locks, those of a batch in flight and those of a fork among them. */
static int live(void *argument) {
    CHECK(argument == &answer);
    small_ones(), burst(), malloc_trim(0);
    pid_t child = fork();
    if (child == 0) small_ones(), _exit(0);
    CHECK(ends_well(child));
    return 7;
}

static int shares(void *argument) { return ++*(int *)argument; }

static void *churn(void *unused) {
    uint64_t random = (uintptr_t)&random;
    while (!stop) free(malloc(next_random(&random) % 100000)), free(malloc(next_random(&random) % 300));
    return unused;
}

static void clones(char *stack, int count) {
    for (int i = 0; i < count; i++) {
        burst();
        usleep(i % 8 * 500); /* the thread wakes */
        int status;
        pid_t child = clone(live, stack + STACK, SIGCHLD, &answer);
        CHECK(child > 0 && ends(child, &status) && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    alarm(LIFETIME);
    char *stack = malloc(STACK);
    CHECK(stack);
    int status, count = 0;
    clones(stack, atoi(argv[1]));
    /* One that shares the memory is no copy: what it writes is its parent's. */
    for (int i = 0; i < SHARING; i++) {
        pid_t child = clone(shares, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, &count);
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == i + 1 && count == i + 1);
    }
    /* Nor is one for whose end or program the caller waits: others would wait for the heap as long. */
    pid_t child = clone(shares, stack + STACK, CLONE_VFORK | SIGCHLD, &count);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == SHARING + 1 && count == SHARING);
    errno = 0;
    CHECK(clone(NULL, stack + STACK, SIGCHLD, NULL) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(clone(live, NULL, SIGCHLD, NULL) == -1 && errno == EINVAL);
    small_ones();
    if (!is_weir()) return 0; /* other heaps do nothing for copies of several threads */
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, churn, NULL) == 0);
    clones(stack, atoi(argv[1]));
    stop = 1;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    free(stack);
    return 0;
}
