/* One block in 16 is left of many, and the kernel merges their pages. What is resident stays, as far as the program sees, and
 * what is charged falls. No block changes, in the program or in a child, whichever process writes. */
#include "check.h"
#include "weir.h"

#include <fcntl.h>

NAMED(usage)

enum { COUNT = 120000, KINDS = 3 };
static const size_t SIZES[KINDS] = {128, 256, 512};
static uint64_t *block[COUNT];
static uint64_t key[COUNT];

static size_t figure(const char *file, const char *name) {
    char text[2048] = {0};
    int fd = open(file, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    char *at = strstr(text, name);
    CHECK(at);
    return strtoull(at + strlen(name), NULL, 10);
}

static size_t merging(void) { return figure("/proc/self/ksm_merging_pages", ""); }
static size_t proportional(void) { return figure("/proc/self/smaps_rollup", "\nPss:") << 10; }
static size_t resident(void) { return figure("/proc/self/smaps_rollup", "\nRss:") << 10; }

static size_t words(int i) { return SIZES[i % KINDS] / sizeof(uint64_t); }

static void write_to(int i, uint64_t with) {
    key[i] = with;
    for (size_t w = 0; w < words(i); w++) block[i][w] = with * 0x9e3779b97f4a7c15u + w;
}

static void check_all(void) {
    for (int i = 0; i < COUNT; i++)
        for (size_t w = 0; block[i] && w < words(i); w++) CHECK(block[i][w] == key[i] * 0x9e3779b97f4a7c15u + w);
}

/* Writes to some of the blocks, frees some, and gets others. */
static void go_on(uint64_t *random) {
    for (int i = 0; i < COUNT; i++) {
        *random ^= *random << 13, *random ^= *random >> 7, *random ^= *random << 17;
        if (block[i] && *random % 10 == 0) write_to(i, *random);
        if (block[i] && *random % 97 == 0) free(block[i]), block[i] = NULL;
        if (!block[i] && *random % 971 == 0) {
            CHECK(block[i] = calloc(1, SIZES[i % KINDS]));
            for (size_t w = 0; w < words(i); w++) CHECK(block[i][w] == 0);
            write_to(i, *random);
        }
    }
}

int main(void) {
    alarm(LIFETIME);
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < COUNT; i++) CHECK(block[i] = malloc(SIZES[i % KINDS])), write_to(i, i);
    for (int i = 0; i < COUNT; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        if (random % 16) free(block[i]), block[i] = NULL;
    }
    WAIT_FOR(merging() > 2000);
    /* The kernel goes on until nothing is left. */
    volatile size_t before = 0;
    WAIT_FOR(before == merging() || (before = merging(), sleep(1), 0));
    size_t shared = resident() - proportional();
    CHECK(shared > 6 << 20);
    check_all();

    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            check_all();
            go_on(&random);
            check_all();
            _exit(0);
        }
        go_on(&random);
        check_all();
        CHECK(ends_well(child));
        check_all();
        usleep(1500000);
    }
    struct weir_usage usage;
    CHECK(p_usage(&usage, sizeof usage) == 0 && usage.merged_bytes > 1 << 20);

    /* Switched off, pages have memory of their own again. */
    set("merge", 0);
    WAIT_FOR(merging() == 0);
    check_all();
    for (int i = 0; i < COUNT; i++) free(block[i]);
    return 0;
}
