/* Programs whose only thread ends by exit(2), the system call, at the moment in which Weir's thread begins: each ends with it,
 * at once. `main_exits` runs many of them; `main_exits US` is one, which waits for so many microseconds before it ends. */
#include "check.h"

#include <dirent.h>
#include <sys/syscall.h>

enum { PROGRAMS = 32, AT_ONCE = 8, BLOCKS = 20000, STATUS = 3 };

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = -2; /* . and .. */
    CHECK(tasks);
    while (readdir(tasks)) count++;
    closedir(tasks);
    return count;
}

static void live_and_exit(int delay) {
    static char *blocks[BLOCKS];
    for (int round = 0; round < 100 && threads() < 2; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            CHECK(blocks[i] = malloc(1000));
            memset(blocks[i], 1, 1000);
        }
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
    usleep(delay);
    syscall(SYS_exit, STATUS);
}

static void start(char *program, int number) {
    char delay[16];
    sprintf(delay, "%d", number * 15);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child) return;
    execl(program, program, delay, NULL);
    _exit(127);
}

int main(int count, char **arguments) {
    if (count > 1) live_and_exit(atoi(arguments[1]));
    /* Where the kernel does not report a thread's end, Weir looks again after a minute. */
    alarm(50);
    for (int i = 0; i < AT_ONCE; i++) start(arguments[0], i);
    for (int i = 0; i < PROGRAMS; i++) {
        int status;
        CHECK(wait(&status) > 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == STATUS);
        if (i + AT_ONCE < PROGRAMS) start(arguments[0], i + AT_ONCE);
    }
    return 0;
}
