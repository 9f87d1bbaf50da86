/* What the background thread is bound to, and whose it is. argv[1] says which. */
#include "check.h"
#include "tasks.h"
#include "weir.h"
#include <sched.h>

enum { BLOCKS = 64, SIZE = 1 << 20 };
static char *block[BLOCKS];

static void take(void) {
    for (int i = 0; i < BLOCKS; i++) CHECK(block[i] = malloc(SIZE)), memset(block[i], i, SIZE);
}

static void give(void) {
    for (int i = 0; i < BLOCKS; i++) free(block[i]);
}

/* A thread of Weir's of this name; waits for it, and until there is only one that is named "weir". The listener bears the background thread's name until it has
 * set its own, as a thread begins with the name of the one that started it. */
static int find(const char *wanted) {
    int found = 0, named = 0;
    char line[64];
    snprintf(line, sizeof line, "Name:\t%s\n", wanted);
    WAIT_FOR(({
        int task[MOST_TASKS], count = threads(task);
        named = 0;
        for (int i = 0; i < count; i++) {
            char name[64];
            status(task[i], "Name:", name, sizeof name);
            if (strcmp(name, line) == 0) found = task[i], named++;
        }
        named >= 1 && (named == 1 || strcmp(wanted, "weir") != 0);
    }));
    return found;
}

/* A child of vfork has its parent's memory, and not its threads. POSIX forbids it to free anything. */
static void in_vfork(void) {
    take(), give();
    int task = find("weir");
    usleep(1500000); /* it sleeps, as a rule, and the next free is to wake it */
    char *late = malloc(2 * SIZE);
    memset(late, 1, 2 * SIZE);
    pid_t child = vfork();
    if (child == 0) free(late), _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    for (int i = 0; i < 5; i++) take(), give(), usleep(100000); /* time to start another one, if it did */
    CHECK(find("weir") == task);
}

static size_t count(void *data) { return 0; }
static size_t scan(size_t bytes, int reason, void *data) { return 0; }
NAMED(shrinker_register)

/* The class and CPUs of a thread are the main thread's. */
static int is_unbound(int task) {
    cpu_set_t theirs, ours;
    CHECK(sched_getaffinity(task, sizeof theirs, &theirs) == 0 && sched_getaffinity(getpid(), sizeof ours, &ours) == 0);
    return sched_getscheduler(task) == SCHED_OTHER && CPU_EQUAL(&theirs, &ours);
}

static void *start_it(void *has_callback) {
    struct sched_param first = {.sched_priority = 50};
    if (sched_setscheduler(0, SCHED_FIFO, &first) != 0) return "not permitted";
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    if (has_callback) {
        struct weir_shrinker shrinker = {.name = "bound", .count = count, .scan = scan};
        for (shrinker.thread = WEIR_THREAD_SHARED; shrinker.thread <= WEIR_THREAD_OWN; shrinker.thread++)
            CHECK(p_shrinker_register(&shrinker, sizeof shrinker));
#ifdef __GLIBC__
        /* Whether they have run or not, as this thread might not let them. */
        int task[MOST_TASKS], found = tasks_of(getpid(), task);
        CHECK(found >= 5);
        for (int i = 0; i < found; i++)
            if (task[i] != (int)syscall(SYS_gettid)) CHECK(is_unbound(task[i]));
#endif
    }
    take(), give();
    return NULL;
}

static void scheduling(const char *wanted, void *has_callback) {
    pthread_t thread;
    void *refused;
    CHECK(pthread_create(&thread, NULL, start_it, has_callback) == 0 && pthread_join(thread, &refused) == 0);
    if (refused) skip_all("a real-time class is not permitted");
    CHECK(is_unbound(find(wanted)));
}

int main(int argc, char **argv) {
    alarm(LIFETIME);
    CHECK(argc == 2);
    if (!is_weir()) skip_all("it is of Weir's own");
    if (strcmp(argv[1], "vfork") == 0) in_vfork();
    if (strcmp(argv[1], "scheduling") == 0) scheduling("weir", NULL);
    if (strcmp(argv[1], "callbacks") == 0) scheduling("weir-callbacks", argv[1]);
    return 0;
}
