/* Figures of /proc on the tasks of a process, Weir's own among them. After check.h. Nothing is allocated here: of a process that
   looks at itself it would be activity, which keeps Weir's threads awake. */
#include <fcntl.h>
#include <sys/syscall.h>

/* The beginning of a file, as a string; empty if it cannot be read. */
static inline void text_of(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t got = 0;
    for (ssize_t n; fd >= 0 && got < size - 1 && (n = read(fd, text + got, size - 1 - got)) > 0;) got += (size_t)n;
    text[got] = 0;
    if (fd >= 0) close(fd);
}

/* The line of a task's status that begins with `key`, with its end; empty if there is none. */
static inline void status_of(int process, int task, const char *key, char *line, int size) {
    char path[64], text[32768]; /* groups of thousands */
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", process, task);
    text_of(path, text, sizeof text);
    const char *at = text;
    while (*at && strncmp(at, key, strlen(key)) != 0) at += strcspn(at, "\n"), at += *at == '\n';
    snprintf(line, (size_t)size, "%.*s", (int)(strcspn(at, "\n") + 1), at);
}

static inline void status(int task, const char *key, char *line, int size) {
    status_of(getpid(), task, key, line, size);
}

/* All tasks of a process; how many. */
enum { MOST_TASKS = 64 };
static inline int tasks_of(int process, int task[MOST_TASKS]) {
    /* As the kernel writes it: getdents64(2). */
    struct entry {
        unsigned long long inode, next;
        unsigned short length;
        unsigned char type;
        char name[];
    };
    char path[64];
    _Alignas(8) char entries[8192];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
    for (long n; fd >= 0 && (n = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;) {
        for (long at = 0; at < n; at += ((struct entry *)(entries + at))->length) {
            const char *name = ((struct entry *)(entries + at))->name;
            if (name[0] != '.' && count < MOST_TASKS) task[count++] = atoi(name);
        }
    }
    if (fd >= 0) close(fd);
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
