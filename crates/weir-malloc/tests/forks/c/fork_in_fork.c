/* A signal handler that forks, in the middle of a fork (fork_interrupts.c): its child ends, or goes on with the fork that was
 * interrupted. */
#include "check.h"
#include <signal.h>

static volatile int goes_on, depth, handled, is_handlers_child;

static void allocate(void) {
    void *many[3000];
    for (int size = 16; size < 3000; size *= 3) {
        for (int i = 0; i < 3000; i++) CHECK(many[i] = malloc(size));
        for (int i = 0; i < 3000; i++) free(many[i]);
    }
    free(malloc(300000));
    free(malloc(8 << 20));
}

static void handler(int signal) {
    if (depth++ == 0) {
        handled++;
        pid_t child = fork();
        if (child) CHECK(ends_well(child));
        else if (alarm(60), goes_on) is_handlers_child = 1;
        else _exit(0);
    }
    depth--;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    alarm(100);
    for (int round = 0; round < 20; round++) {
        goes_on = round % 2;
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            allocate();
            _exit(0);
        }
        /* In the handler's child too, which has a child of its own by now. */
        CHECK(ends_well(child));
        allocate();
        if (is_handlers_child) {
            pid_t last = fork();
            if (last == 0) allocate(), _exit(0);
            CHECK(ends_well(last));
            _exit(0);
        }
    }
    CHECK(handled == 20);
    return 0;
}
