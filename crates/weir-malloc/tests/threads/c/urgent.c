/* The background thread blocks all signals. What others send to the process is the program's all the same, also where
 * all its threads block it and one asks for it. */
#include "check.h"
#include <signal.h>

enum { COUNT = 60000, SIZE = 1000 };
static char *block[COUNT];

static void burst(void) {
    for (int i = 0; i < COUNT; i++) CHECK(block[i] = malloc(SIZE)), memset(block[i], i, SIZE);
    for (int i = 0; i < COUNT; i++) free(block[i]);
}

int main(void) {
    alarm(LIFETIME);
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGURG);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    burst();
    for (int i = 0; i < 30; i++) {
        union sigval value = {.sival_int = i};
        CHECK(sigqueue(getpid(), SIGURG, value) == 0);
        if (i % 2) usleep(1000); /* time for a thief */
        siginfo_t info;
        CHECK(sigwaitinfo(&set, &info) == SIGURG);
        CHECK(info.si_code == SI_QUEUE && info.si_pid == getpid() && info.si_value.sival_int == i);
    }
    return 0;
}
