/* What the background thread is bound to, and whose it is. argv[1] says which. */
#include "check.h"
#include "tasks.h"
#include <sched.h>

enum { BLOCKS = 64, SIZE = 1 << 20 };
static char *block[BLOCKS];

static void take(void) {
    for (int i = 0; i < BLOCKS; i++) CHECK(block[i] = malloc(SIZE)), memset(block[i], i, SIZE);
}

static void give(void) {
    for (int i = 0; i < BLOCKS; i++) free(block[i]);
}

/* The background thread; waits for it. The listener bears the same name until it has set its own, as a thread begins
 * with the name of the one that started it. */
static int find(void) {
    int found = 0, named = 0;
    WAIT_FOR(({
        int task[MOST_TASKS], count = threads(task);
        named = 0;
        for (int i = 0; i < count; i++) {
            char name[64];
            status(task[i], "Name:", name, sizeof name);
            if (strcmp(name, "Name:\tweir\n") == 0) found = task[i], named++;
        }
        named == 1;
    }));
    return found;
}

/* A child of vfork has its parent's memory, and not its threads. POSIX forbids it to free anything. */
static void in_vfork(void) {
    take(), give();
    int task = find();
    usleep(1500000); /* it sleeps, as a rule, and the next free is to wake it */
    char *late = malloc(2 * SIZE);
    memset(late, 1, 2 * SIZE);
    pid_t child = vfork();
    if (child == 0) free(late), _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    for (int i = 0; i < 5; i++) take(), give(), usleep(100000); /* time to start another one, if it did */
    CHECK(find() == task);
}

static void *start_it(void *argument) {
    struct sched_param first = {.sched_priority = 50};
    if (sched_setscheduler(0, SCHED_FIFO, &first) != 0) return "not permitted";
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    take(), give();
    return NULL;
}

static void scheduling(void) {
    pthread_t thread;
    void *refused;
    CHECK(pthread_create(&thread, NULL, start_it, NULL) == 0 && pthread_join(thread, &refused) == 0);
    if (refused) skip_all("a real-time class is not permitted");
    int task = find();
    CHECK(sched_getscheduler(task) == SCHED_OTHER);
    cpu_set_t theirs, ours;
    CHECK(sched_getaffinity(task, sizeof theirs, &theirs) == 0 && sched_getaffinity(0, sizeof ours, &ours) == 0);
    CHECK(CPU_EQUAL(&theirs, &ours));
}

int main(int argc, char **argv) {
    alarm(LIFETIME);
    CHECK(argc == 2);
    if (!is_weir()) skip_all("it is of Weir's own");
    if (strcmp(argv[1], "vfork") == 0) in_vfork();
    if (strcmp(argv[1], "scheduling") == 0) scheduling();
    return 0;
}
