/* Which part of a heap is in huge pages, as the setting huge_heap says: a part filled with it, one without, one with it. */
#include "check.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#define SIZE 4000
#define PART (48 << 20)

/* Of the program, KiB. */
static long huge_kib(void) {
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, "AnonHugePages:", 14)) kib = strtol(line + 14, NULL, 10);
    fclose(file);
    return kib;
}

/* Whether a mapping that asks for huge pages gets most of them now: the machine may be out of them, or the process barred. */
static int are_there(void) {
    size_t size = 32 << 20;
    long before = huge_kib();
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    CHECK(madvise(at, size, MADV_HUGEPAGE) == 0);
    memset(at, 1, size);
    long got = huge_kib() - before;
    CHECK(munmap(at, size) == 0);
    return got >= 24 << 10;
}

static void fill_part(void) {
    for (size_t i = 0; i < PART / SIZE; i++) {
        char *block = malloc(SIZE);
        CHECK(block);
        memset(block, 1, SIZE);
    }
}

static long rss_kib(void) { return resident_bytes() / 1024; }

/* The machine's huge pages, and a file in the place of the one that says so. */
#define ENABLED "/sys/kernel/mm/transparent_hugepage/enabled"

static void say(const char *file, const char *mode) {
    int fd = open(file, O_WRONLY);
    CHECK(fd >= 0 && write(fd, mode, strlen(mode)) == (ssize_t)strlen(mode) && close(fd) == 0);
}

/* Begins again where the machine's huge pages are said to be `always`; the file that says so is the second argument. */
static void begin_under_always(const char *program) {
    char file[] = "/tmp/weir-mode-XXXXXX";
    int fd = mkstemp(file);
    CHECK(fd >= 0 && close(fd) == 0);
    say(file, "[always] madvise never\n");
    int is_mounted = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0
                     && mount(file, ENABLED, NULL, MS_BIND, NULL) == 0;
    if (!is_mounted) CHECK(unlink(file) == 0), skip_all("no file can be mounted here");
    execl(program, program, "mode", file, (char *)NULL);
    CHECK(!"executed");
}

/* A program that switches huge pages off for itself, or the machine's (`file`), and frees every other of its blocks: down to three
   quarters are released. */
static void without_huge_pages(const char *file) {
    enum { BLOCKS = 1000, BLOCK = 60 << 10 };
    static char *blocks[BLOCKS];
    free(malloc(1));
    if (!file) CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    else say(file, "always [madvise] never\n"), CHECK(unlink(file) == 0);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(blocks[i] = malloc(BLOCK));
        memset(blocks[i], 1, BLOCK);
    }
    long peak = rss_kib();
    sleep(1); /* of calm, in which it is noticed, as a rule: otherwise after the frees */
    for (int i = 0; i < BLOCKS; i += 2) free(blocks[i]);
    WAIT_FOR(rss_kib() <= peak / 4 * 3);
    printf("%ld\n", peak);
}

int main(int count, char **words) {
    if (count == 2 && !strcmp(words[1], "mode")) begin_under_always(words[0]);
    if (count > 1) {
        without_huge_pages(words[2]);
        return 0;
    }
    if (!are_there()) skip_all("the system gives no huge pages to who asks for them");
    long parts[4] = {huge_kib()};
    for (int i = 1; i < 4; i++) {
        if (i > 1) set("huge_heap", i == 3);
        fill_part();
        parts[i] = huge_kib();
    }
    printf("%ld %ld %ld\n", parts[1] - parts[0], parts[2] - parts[1], parts[3] - parts[2]);
    return 0;
}
