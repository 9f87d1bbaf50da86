/* A handler that forks may have interrupted the heap at work: it must not wait for itself. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

static volatile int forks;

static void handler(int signal) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    forks++;
}

int main(void) {
    alarm(LIFETIME);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGVTALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 2000}, {0, 2000}};
    CHECK(setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
    static void *block[4000];
    while (forks < 200) {
        for (int i = 0; i < 200; i++) CHECK(block[i] = malloc(40000));
        for (int i = 0; i < 200; i++) free(block[i]);
        for (int i = 0; i < 4000; i++) CHECK(block[i] = malloc(64)), fill(block[i], 64, i);
        for (int i = 0; i < 4000; i++) CHECK(holds(block[i], 64, i)), free(block[i]);
    }
    return 0;
}
