/* A process that is moved to another control group while it runs hears of that group's limit. Run with calm windows so long
   that nothing but pressure releases anything. */
#include "group.h"

enum { LIMIT = 64 << 20, SIZE = 20000, MOST = 2 * LIMIT / SIZE };
static char *block[MOST];

static void child(void) {
    /* The background thread starts, in the group that the process is in now. */
    for (int i = 0; i < 1000; i++) CHECK(block[i] = malloc(SIZE)), memset(block[i], 1, SIZE);
    for (int i = 0; i < 1000; i++) free(block[i]);
    sleep(1); /* it listens to that group's events by now, as a rule */
    CHECK(write_to("cgroup.procs", "0"));
    int count = 0;
    while (count < MOST && in_group("memory.usage_in_bytes") < LIMIT / 100 * 98)
        for (int end = count + 8; count < end && count < MOST; count++)
            CHECK(block[count] = malloc(SIZE)), memset(block[count], 1, SIZE);
    while (count > 0) free(block[--count]);
    WAIT_FOR((long)resident_bytes() <= LIMIT / 2);
    _exit(0);
}

int main(void) {
    alarm(LIFETIME);
    if (!is_weir()) skip_all("it is of Weir's own");
    if (!make_group(LIMIT)) rmdir(group), skip_all("no control group (v1, memory) may be made here");
    pid_t pid = fork();
    if (pid == 0) child();
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    rmdir(group);
    CHECK(status == 0);
    return 0;
}
