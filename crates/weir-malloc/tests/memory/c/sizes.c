// Called as `sizes BEFORE KEEP AFTER`. It allocates 100 MiB in blocks of BEFORE bytes, and frees all but one in KEEP (0:
// all). Then it allocates 85 % of that in blocks of AFTER bytes. All is written to. Prints the most bytes that lived at
// a time and the peak of the resident set, in KiB.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALL = 100 << 20 };

static long peak_kib(void) {
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "VmHWM: %ld", &kib);
    fclose(status);
    return kib;
}

static char *filled(size_t size) {
    char *block = malloc(size);
    if (!block) exit(1);
    return memset(block, 1, size);
}

int main(int count, char **words) {
    if (count != 4) return 2;
    size_t before = atol(words[1]), keep = atol(words[2]), after = atol(words[3]), blocks = ALL / before, kept = 0;
    char **at = calloc(blocks, sizeof *at);
    for (size_t i = 0; i < blocks; i++) at[i] = filled(before);
    for (size_t i = 0; i < blocks; i++) {
        if (keep && i % keep == 0) kept += before;
        else free(at[i]);
    }
    size_t more = ALL / 100 * 85 / after * after;
    for (size_t n = 0; n < more; n += after) filled(after);
    size_t most = blocks * before > kept + more ? blocks * before : kept + more;
    printf("%zu %ld\n", most / 1024, peak_kib());
    return 0;
}
