/* A control group (v1, memory) of a test's own. */
#pragma once
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
static int make_group(long limit) {
    char line[512], *path = NULL;
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file && !path && fgets(line, sizeof line, file)) {
        path = strstr(line, ":memory:");
        line[strcspn(line, "\n")] = 0;
    }
    if (file) fclose(file);
    if (!path) return 0;
    snprintf(group, sizeof group, "/sys/fs/cgroup/memory%s/weir-test-%d", path + strlen(":memory:"), (int)getpid());
    char text[32];
    snprintf(text, sizeof text, "%ld", limit);
    return mkdir(group, 0755) == 0 && write_to("memory.limit_in_bytes", text);
}
