/* A storm of signals while threads allocate: every restartable sequence gets interrupted somewhere. argv[1]:
   seconds. */
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <sys/time.h>

enum { THREADS = 4 };
static volatile long hits;
static volatile int stop;
static void on_signal(int number) { __atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED); }

static void *churn(void *argument) {
    uint64_t random = (uintptr_t)argument * 77 + 1;
    enum { COUNT = 256 };
    unsigned char *block[COUNT] = {0};
    size_t size[COUNT] = {0};
    while (!stop)
        for (int turn = 0; turn < 1000; turn++) {
            int i = next_random(&random) % COUNT;
            if (block[i]) CHECK(holds(block[i], size[i], (uintptr_t)block[i]));
            free(block[i]);
            size[i] = next_random(&random) % 200;
            CHECK(block[i] = malloc(size[i]));
            fill(block[i], size[i], (uintptr_t)block[i]);
        }
    for (int i = 0; i < COUNT; i++) CHECK(holds(block[i], size[i], (uintptr_t)block[i])), free(block[i]);
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    alarm(LIFETIME);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL), sigaction(SIGUSR1, &action, NULL), sigaction(SIGVTALRM, &action, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
    pthread_t thread[THREADS];
    for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, churn, (void *)i) == 0);
    double end = now() + atoi(argv[1]);
    /* Until enough came, however busy the machine is. */
    for (long sent = 0; now() < end || hits <= 1000; sent++) {
        pthread_kill(thread[sent % THREADS], SIGUSR1);
        if (sent % 64 == 0) {
            /* Moves between CPUs abort sequences as well. */
            cpu_set_t set;
            CPU_ZERO(&set);
            CPU_SET(sent / 64 % sysconf(_SC_NPROCESSORS_ONLN), &set);
            pthread_setaffinity_np(thread[sent / 64 % THREADS], sizeof set, &set); /* refused in some cages: as well */
            sched_yield();
        }
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    return 0;
}
