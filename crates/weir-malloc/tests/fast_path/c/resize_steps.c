/* Counts the instructions of a realloc that leaves the block as it is, one by one as a debugger does. The block is a run of
 * pages, then an object. */
#include "check.h"

#include <signal.h>
#include <sys/ptrace.h>

static void *nothing(void *block, size_t size) {
    (void)size;
    return block;
}

/* Instructions between two stops of a child, which calls `resize` of its block of `from` bytes in between. */
static long steps(void *(*volatile resize)(void *, size_t), size_t from, size_t to) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char *block = malloc(from);
        CHECK(block && resize(block, to) == block);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            printf("SKIPPED: ptrace is refused (errno %d)\n", errno);
            fflush(stdout);
            _exit(77);
        }
        raise(SIGSTOP);
        void *after = resize(block, to);
        raise(SIGSTOP);
        CHECK(after == block);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    long steps = 0;
    do {
        CHECK(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0);
        CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
        steps++;
    } while (WSTOPSIG(status) != SIGSTOP);
    CHECK(ptrace(PTRACE_CONT, child, NULL, NULL) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return steps;
}

int main(void) {
    alarm(LIFETIME);
    struct {
        const char *what;
        size_t from, to;
    } cases[] = {{"run", 50000, 50016}, {"object", 1000, 1010}};
    for (int i = 0; i < 2; i++) {
        long without = steps(nothing, cases[i].from, cases[i].to);
        printf("%s %ld\n", cases[i].what, steps(realloc, cases[i].from, cases[i].to) - without);
    }
    return 0;
}
