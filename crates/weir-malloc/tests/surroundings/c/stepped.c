/* A program that is stepped through, instruction by instruction, as by a debugger: malloc and free return. Each step ends a
 * restartable section, which begins again. */
#include "check.h"

#include <signal.h>
#include <sys/ptrace.h>

/* Few: a debug build of the library takes ten times as many instructions, and each step is two switches of threads. */
static void allocate(void) {
    char *block = malloc(64);
    CHECK(block);
    memset(block, 1, 64);
    free(block);
    CHECK(block = malloc(50000));
    free(block);
}

int main(void) {
    /* Sections that are sent back for ever. */
    alarm(280);
    for (int i = 0; i < 100; i++) allocate();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            printf("SKIPPED: ptrace is refused (errno %d)\n", errno);
            fflush(stdout);
            _exit(77);
        }
        raise(SIGSTOP);
        allocate();
        _exit(0);
    }
    long steps = 0;
    int status;
    for (;; steps++) {
        CHECK(waitpid(child, &status, 0) == child);
        if (!WIFSTOPPED(status)) break;
        int signal = WSTOPSIG(status) == SIGTRAP || WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status);
        CHECK(ptrace(PTRACE_SINGLESTEP, child, NULL, (void *)(long)signal) == 0);
    }
    CHECK(WIFEXITED(status));
    printf("%ld steps\n", steps);
    return WEXITSTATUS(status);
}
