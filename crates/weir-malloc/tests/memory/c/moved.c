/* A process that is moved to another control group while it runs hears of that group's limit. Run with calm windows so long
   that nothing but pressure releases anything. */
#include "check.h"
#include <sys/stat.h>

static char group[600];

static long number_in(const char *path) {
    long number = -1;
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%ld", &number) != 1) number = -1;
    if (file) fclose(file);
    return number;
}

static long in_group(const char *name) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", group, name);
    return number_in(path);
}

static int write_to(const char *name, const char *text) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", group, name);
    FILE *file = fopen(path, "w");
    int is_written = file && fputs(text, file) >= 0;
    return file ? (fclose(file) == 0) & is_written : 0;
}

/* A v1 group below the own one, with a limit. */
static int make_group(void) {
    char line[512], *path = NULL;
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file && !path && fgets(line, sizeof line, file)) {
        path = strstr(line, ":memory:");
        line[strcspn(line, "\n")] = 0;
    }
    if (file) fclose(file);
    if (!path) return 0;
    snprintf(group, sizeof group, "/sys/fs/cgroup/memory%s/weir-moved-%d", path + strlen(":memory:"), (int)getpid());
    return mkdir(group, 0755) == 0 && write_to("memory.limit_in_bytes", "64M");
}

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
    if (!make_group()) rmdir(group), skip_all("no control group (v1, memory) may be made here");
    pid_t pid = fork();
    if (pid == 0) child();
    int status;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    rmdir(group);
    CHECK(status == 0);
    return 0;
}
