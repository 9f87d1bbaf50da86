/* Figures of /proc on the tasks of a process, Weir's own among them. After check.h. */
#include <dirent.h>

/* The line of a task's status that begins with `key`; empty if there is none. */
static inline void status_of(int process, int task, const char *key, char *line, int size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", process, task);
    FILE *file = fopen(path, "r");
    line[0] = 0;
    while (file && fgets(line, size, file) && strncmp(line, key, strlen(key)) != 0) line[0] = 0;
    if (file) fclose(file);
}

static inline void status(int task, const char *key, char *line, int size) {
    status_of(getpid(), task, key, line, size);
}

/* All tasks of a process; how many. */
enum { MOST_TASKS = 64 };
static inline int tasks_of(int process, int task[MOST_TASKS]) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    int count = 0;
    for (struct dirent *entry; tasks && (entry = readdir(tasks));)
        if (entry->d_name[0] != '.' && count < MOST_TASKS) task[count++] = atoi(entry->d_name);
    if (tasks) closedir(tasks);
    return count;
}

/* Weir's threads in this process; how many. */
static inline int threads(int task[MOST_TASKS]) {
    int all[MOST_TASKS], found = tasks_of(getpid(), all), count = 0;
    for (int i = 0; i < found; i++) {
        char name[64];
        status(all[i], "Name:", name, sizeof name);
        if (strncmp(name, "Name:\tweir", 10) == 0) task[count++] = all[i];
    }
    return count;
}

/* How often the tasks of a process were switched to, in all; -1: one of them does not sleep. One that has no CPU does not. */
static inline long switches_of(int process) {
    int task[MOST_TASKS], found = tasks_of(process, task);
    long sum = 0;
    for (int i = 0; i < found; i++) {
        char line[100];
        status_of(process, task[i], "State:", line, sizeof line);
        if (line[0] == 0 || !strchr("SZ", line[7])) return -1;
        static const char *const keys[] = {"voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"};
        for (int k = 0; k < 2; k++) {
            status_of(process, task[i], keys[k], line, sizeof line);
            sum += atol(line + strcspn(line, "\t"));
        }
    }
    return sum;
}

/* Whether a child of this process ends by what its threads are told, and not by a time after which they look again. Without
   that, all its tasks sleep, and none is switched to, for 500 looks of 10 ms and more. A slow machine has them wait
   for a CPU, which is not sleep. */
static inline int ends(pid_t child, int *result) {
    long before = -1;
    for (int still = 0; still < 500; usleep(10000)) {
        if (waitpid(child, result, WNOHANG) == child) return 1;
        long after = switches_of(child);
        still = after >= 0 && after == before ? still + 1 : 0;
        before = after;
    }
    return 0;
}
