// grow HOW STEP FINAL COUNT SMALL: COUNT buffers grow in turn to FINAL bytes each, by STEP bytes a time or, if STEP is
// 0, by doubling; HOW is "realloc" or "copy" (malloc, copy, free). With each step SMALL bytes of small objects are
// allocated, which stay. Prints the most bytes that lived at a time and the peak of the resident set, both in KiB, and
// the CPU time in microseconds.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { START = 16, OBJECT = 100 };

static long peak_kib(void) {
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "VmHWM: %ld", &kib);
    fclose(status);
    return kib;
}

int main(int count, char **words) {
    if (count != 6) return 2;
    int by_realloc = !strcmp(words[1], "realloc");
    size_t step = atol(words[2]), final = atol(words[3]), buffers = atol(words[4]), small = atol(words[5]);
    char **at = calloc(buffers, sizeof *at);
    size_t len = START, objects = 0, most = 0;
    for (size_t i = 0; i < buffers; i++) memset(at[i] = malloc(len), 1, len);
    while (len < final) {
        size_t next = step ? len + step : 2 * len;
        for (size_t i = 0; i < buffers; i++) {
            char *new;
            if (by_realloc) {
                new = realloc(at[i], next);
            } else {
                new = malloc(next);
                memcpy(new, at[i], len);
                free(at[i]);
            }
            if (!new || new[0] != 1 || new[len - 1] != 1) return 1;
            memset(new + len, 1, next - len);
            at[i] = new;
            for (size_t n = 0; n < small; n += OBJECT, objects++) {
                char *object = malloc(OBJECT);
                if (!object) return 1;
                memset(object, 2, OBJECT);
            }
        }
        // What a copy needs beside its original counts as far as it is written to.
        size_t live = buffers * next + objects * OBJECT + (by_realloc || !step ? 0 : len);
        if (live > most) most = live;
        len = next;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    long us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    printf("%zu %ld %ld\n", most / 1024, peak_kib(), us);
    return 0;
}
