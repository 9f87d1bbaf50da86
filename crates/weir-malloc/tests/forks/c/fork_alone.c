/* A program of one thread forks again and again while the background thread is at work now and then. Each child finds a heap that
 * works. And where libc says that there is one thread, a fork writes to few pages of the heap's, which parent and child would copy. */
#include "check.h"
#include <sched.h>
#include <sys/resource.h>

enum { FORKS = 300, SIZES = 9, FILLED = 100000 };

static const size_t sizes[SIZES] = {16, 100, 1000, 5000, 20000, 100000, 700000, 3000000, 9000000};

static void use_all(void) {
    void *blocks[SIZES];
    for (int i = 0; i < SIZES; i++) {
        CHECK(blocks[i] = malloc(sizes[i]));
        /* Of a long one its ends: each fault costs a child and its parent time. */
        memset(blocks[i], i, sizes[i] < FILLED ? sizes[i] : FILLED);
        ((char *)blocks[i])[sizes[i] - 1] = (char)i;
    }
    for (int i = 0; i < SIZES; i++) {
        CHECK(blocks[i] = realloc(blocks[i], sizes[i] * 2));
        CHECK(((char *)blocks[i])[sizes[i] - 1] == i);
        free(blocks[i]);
    }
}

static int end_at_once(void *unused) {
    (void)unused;
    return 0;
}

static long faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

static int compare(const void *a, const void *b) { return (*(const long *)a > *(const long *)b) - (*(const long *)a < *(const long *)b); }

int main(void) {
    static long taken[FORKS];
    alarm(LIFETIME);
    use_all();
    for (int i = 0; i < FORKS; i++) {
        if (i % 10 == 0) use_all();
        if (i % 50 == 0) malloc_trim(0);
        long before = faults();
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(LIFETIME);
            use_all();
            /* A child's child: the heap is whole once more. */
            pid_t grandchild = i % 20 == 0 ? fork() : -1;
            use_all();
            CHECK(grandchild <= 0 || ends_well(grandchild));
            _exit(0);
        }
        taken[i] = faults() - before;
        CHECK(ends_well(child));
    }
    const char *alone = dlsym(RTLD_DEFAULT, "__libc_single_threaded");
    if (!is_weir() || !alone || !*alone) {
        skip_part("libc does not say whether a process has one thread");
        return 0;
    }
    /* 31 where the locks are taken. A fork while the background thread is at work takes them, so the median counts. */
    qsort(taken, FORKS, sizeof *taken, compare);
    printf("page faults of a fork's parent: %ld to %ld, median %ld\n", taken[0], taken[FORKS - 1], taken[FORKS / 2]);
    CHECK(taken[FORKS / 2] <= 16);
    /* What shares the memory might be a thread that libc knows nothing of. */
    static char stack[1 << 16] __attribute__((aligned(16)));
    pid_t sharer = clone(end_at_once, stack + sizeof stack, CLONE_VM | SIGCHLD, 0), child;
    CHECK(sharer > 0 && waitpid(sharer, 0, 0) == sharer);
    long before = faults();
    if ((child = fork()) == 0) _exit(0);
    long with_locks = faults() - before;
    CHECK(waitpid(child, 0, 0) == child);
    printf("beside what shares its memory: %ld\n", with_locks);
    CHECK(with_locks > taken[FORKS / 2] + 8);
    return 0;
}
