/* The figures against what the program holds and what the kernel counts as resident. Under another malloc there are
 * none: then there is nothing to check. */
#include "check.h"
#include "weir.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { COUNT = 300000, SIZE = 1000, RUNS = 40, RUN = 300000 };
static const size_t MIB = 1 << 20, BLOCK = 64 << 20;

NAMED(usage) NAMED(ctl)
static void *object[COUNT], *run[RUNS];
static struct weir_usage usage;
/* Resident and not Weir's, at the beginning. */
static size_t others, live_before;

/* The process's resident set as the kernel counts it, not as it remembers it. */
static size_t resident_set(void) {
    char text[1024] = {0};
    int fd = open("/proc/self/smaps_rollup", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    return strtoull(strstr(text, "\nRss:") + 5, NULL, 10) << 10;
}

/* Bytes of anonymous mappings of over 1 MiB that are in core and not in the resident set: pages of zeros. Such are there where
 * memory was only read; and from Linux 6.12 on, where the kernel split a huge page of which a part was never written. Weir
 * goes by what is in core. Says what it finds where it `tells`. */
static size_t zeros(int tells) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    size_t from = 0, end = 0, rss, found = 0;
    unsigned long inode = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        size_t a, b;
        unsigned long file;
        if (sscanf(line, "%zx-%zx %*s %*s %*s %lu", &a, &b, &file) == 3) from = a, end = b, inode = file;
        if (sscanf(line, "Rss: %zu kB", &rss) != 1 || end - from < MIB || inode != 0) continue;
        size_t in_core = 0;
        unsigned char pages[512];
        for (size_t at = from; at < end && rss > 0; at += sizeof pages * 4096) {
            size_t count = (end - at) / 4096 < sizeof pages ? (end - at) / 4096 : sizeof pages;
            if (mincore((void *)at, count * 4096, pages) != 0) continue;
            for (size_t i = 0; i < count; i++) in_core += (pages[i] & 1) * 4;
        }
        if (tells) dprintf(2, "%zx-%zx: resident set %zu KiB, in core %zu KiB\n", from, end, rss, in_core);
        if (in_core > rss) found += (in_core - rss) << 10;
    }
    if (maps) fclose(maps);
    return found;
}

static size_t sum(void) {
    return usage.live_bytes + usage.idle_bytes + usage.fragmented_bytes + usage.metadata_bytes - usage.untouched_bytes;
}

static int near(size_t a, size_t b, size_t bound) { return a < b ? b - a <= bound : a - b <= bound; }

/* Whether the figures are right where `live` bytes are held, `untouched` of which were never written. */
static int are_right(size_t live, size_t untouched) {
    struct mallinfo2 info = mallinfo2();
    CHECK(p_usage(&usage, sizeof usage) == 0);
    size_t resident = resident_set();
    size_t free_bytes = usage.idle_bytes + usage.fragmented_bytes;
    return near(usage.live_bytes - live_before, live, live / 20) && near(usage.untouched_bytes, untouched, MIB)
        && (near(sum() + others, resident, 2 * MIB) || near(sum() + others, resident + zeros(0), 2 * MIB)) && near(info.uordblks + info.hblkhd, usage.live_bytes, MIB)
        && near(info.fordblks, free_bytes, MIB) && info.arena == info.uordblks + info.fordblks
        && info.hblkhd == usage.mapped_bytes && near(info.keepcost, usage.idle_bytes, MIB);
}

/* The background thread may release some between one reading and the next: then they are read again. */
static void check_figures(const char *when, size_t live, size_t untouched) {
    for (double begin = now(); now() - begin < PATIENCE; usleep(10000))
        if (are_right(live, untouched)) return;
    struct mallinfo2 info = mallinfo2();
    dprintf(2, "%s: live %zu (held %zu + %zu), idle %zu, fragmented %zu, metadata %zu, untouched %zu (%zu)\n", when,
            usage.live_bytes, live, live_before, usage.idle_bytes, usage.fragmented_bytes, usage.metadata_bytes,
            usage.untouched_bytes, untouched);
    dprintf(2, "sum %zu + others %zu, resident %zu; mallinfo2: uordblks %zu, fordblks %zu, hblkhd %zu, keepcost %zu\n",
            sum(), others, resident_set(), info.uordblks, info.fordblks, info.hblkhd, info.keepcost);
    dprintf(2, "%zu bytes of zeros\n", zeros(1));
    CHECK(!"the figures are wrong");
}

int main(int count, char **arguments) {
    if (!is_weir()) skip_all("it is of Weir's own");
    if (count > 1) CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    /* What the test itself touches is resident before it begins. */
    memset(object, 1, sizeof object), memset(run, 1, sizeof run);
    memset(malloc(SIZE), 1, SIZE);
    CHECK(p_usage(&usage, sizeof usage) == 0 && sizeof mallinfo2() > 0);
    live_before = usage.live_bytes, others = resident_set() - sum();

    size_t live = 0, untouched = 0;
    for (int i = 0; i < COUNT; i++) {
        memset(object[i] = malloc(SIZE), 1, SIZE);
        live += malloc_usable_size(object[i]);
    }
    check_figures("full", live, 0);
    CHECK(usage.idle_bytes < 4 * MIB && usage.mapped_count == 0);

    for (int i = 0; i < COUNT; i++) {
        if (i % 20 == 0) continue;
        live -= malloc_usable_size(object[i]);
        free(object[i]);
    }
    check_figures("thinned", live, 0);
    /* Issue 10: 234 MiB were said to be in use, where 15 are. */
    CHECK(mallinfo2().uordblks < 16 * MIB);

    for (int i = 0; i < RUNS; i++) {
        memset(run[i] = malloc(RUN), 1, RUN);
        live += malloc_usable_size(run[i]);
    }
    char *block = malloc(BLOCK);
    memset(block, 1, BLOCK / 4);
    live += malloc_usable_size(block);
    int huge = p_usage(&usage, sizeof usage) == 0 && usage.untouched_bytes < MIB;
    untouched = huge ? usage.untouched_bytes : malloc_usable_size(block) - BLOCK / 4;
    check_figures("runs and a block", live, untouched);
    CHECK(usage.mapped_count == 1 && usage.mapped_bytes == malloc_usable_size(block));

    for (int i = 0; i < RUNS; i += 2) {
        live -= malloc_usable_size(run[i]);
        free(run[i]);
    }
    live -= malloc_usable_size(block);
    free(block);
    check_figures("half of them", live, 0);

    malloc_trim(0);
    check_figures("trimmed", live, 0);
    CHECK(usage.idle_bytes < 2 * MIB && usage.mapped_count == 0);

    /* The same by name. */
    static const struct { const char *name; size_t *field; } named[] = {
        {"stats.live_bytes", &usage.live_bytes},         {"stats.fragmented_bytes", &usage.fragmented_bytes},
        {"stats.idle_bytes", &usage.idle_bytes},         {"stats.metadata_bytes", &usage.metadata_bytes},
        {"stats.mapped_bytes", &usage.mapped_bytes},     {"stats.untouched_bytes", &usage.untouched_bytes},
    };
    CHECK(p_usage(&usage, sizeof usage) == 0);
    size_t total = sum();
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        uint64_t value;
        size_t size = sizeof value;
        CHECK(p_ctl(named[i].name, &value, &size, NULL, 0) == 0 && near(value, *named[i].field, MIB));
    }
    uint64_t resident;
    size_t size = sizeof resident;
    CHECK(p_ctl("stats.resident_bytes", &resident, &size, NULL, 0) == 0 && near(resident, total, MIB));
    return 0;
}
