/* A program whose last thread ends by pthread_exit while Weir's threads for callbacks have just been made: it ends all the
 * same. This file's pthread_create stands before libc's, and has threads that Weir makes begin late. The program is executed
 * by another run of itself, which sees that it ends. */
#include "check.h"
#include "tasks.h"

#include "weir.h"

static int (*real_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static volatile int delays;

struct late {
    void *(*body)(void *);
    void *argument;
};

/* After the main thread's end, and a while in which the background thread looks for the program's last thread. Where that has
   no CPU meanwhile, nothing is late, and the program has to end as well. */
static void *begin_late(void *at) {
    struct late late = *(struct late *)at;
    char state[64];
    WAIT_FOR((status(getpid(), "State:", state, sizeof state), state[7] == 'Z'));
    usleep(300000);
    return late.body(late.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    static struct late all[16];
    static int count;
    if (!delays) return real_create(thread, attributes, body, argument);
    int i = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    CHECK(i < 16);
    all[i] = (struct late){body, argument};
    return real_create(thread, attributes, begin_late, &all[i]);
}

static size_t count(void *data) { return 0; }
static size_t scan(size_t bytes, int reason, void *data) { return 0; }

NAMED(shrinker_register)

static void program(void) {
    CHECK(real_create = (__typeof__(real_create))dlsym(RTLD_NEXT, "pthread_create"));
    delays = 1;
    struct weir_shrinker shrinker = {.name = "late", .count = count, .scan = scan};
    for (int own = 0; own < 2; own++) {
        shrinker.thread = own ? WEIR_THREAD_OWN : WEIR_THREAD_SHARED;
        CHECK(p_shrinker_register(&shrinker, sizeof shrinker));
    }
    int task[MOST_TASKS];
    WAIT_FOR(threads(task) >= 1); /* the background thread, which looks for the program's last thread as this one ends */
    pthread_exit(NULL);
}

int main(int count, char **arguments) {
    if (!is_weir()) skip_all("it is of Weir's own");
    if (count > 1) program();
    int result;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) execl("/proc/self/exe", arguments[0], "program", NULL), _exit(1);
    CHECK(ends(child, &result) && WIFEXITED(result) && WEXITSTATUS(result) == 0);
    return 0;
}
