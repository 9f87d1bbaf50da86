/* A process with as many mappings as it may have (vm.max_map_count) goes on, and so do its children, which do not count into its
   counters. So do those of a process that has more addresses than it may have by now (RLIMIT_AS). */
#include "../../common/check.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { MOST = 100000, BLOCKS = 4000 };

static char *mappings[MOST];
static void *blocks[BLOCKS], *kept[BLOCKS];

static long limit(void) {
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    long most = 0;
    if (file && fscanf(file, "%ld", &most) != 1) most = 0;
    if (file) fclose(file);
    return most;
}

/* Whether the counters are in a file of the process's own; it takes no memory to find out. */
static int counters_are_shared(void) {
    static char text[1 << 16];
    static const char name[] = "memfd:weir-page";
    size_t kept = 0;
    int file = open("/proc/self/maps", O_RDONLY), found = 0;
    for (ssize_t got; !found && (got = read(file, text + kept, sizeof text - kept)) > 0;) {
        size_t len = kept + got;
        found = memmem(text, len, name, strlen(name)) != NULL;
        kept = len < sizeof name ? len : sizeof name;
        memmove(text, text + len - kept, kept);
    }
    close(file);
    return found;
}

static void use_heap(void) {
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(blocks[i] = malloc(4000));
        memset(blocks[i], 1, 4000);
    }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

/* A block stays beside each that goes. Under a limit of addresses a quiet heap unmaps what is wholly free: it could not be mapped
   again here, as under glibc, which gives the end of its heap back. */
static void keep_heap(void) {
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(4000)) && (kept[i] = malloc(4000)));
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static void child_goes_on(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK(!counters_are_shared());
        use_heap();
        _exit(0);
    }
    CHECK(ends_well(child));
}

/* Its children have counters of their own, and theirs too. No new memory is to be had. */
static void beyond_the_limit(void) {
    struct rlimit now, low;
    CHECK(getrlimit(RLIMIT_AS, &now) == 0);
    low = now, low.rlim_cur = 1 << 20;
    fflush(stdout);
    CHECK(setrlimit(RLIMIT_AS, &low) == 0);
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        if (child == 0) {
            CHECK(!counters_are_shared());
            child = fork();
            if (child == 0) _exit(counters_are_shared());
            CHECK(ends_well(child));
            _exit(0);
        }
        CHECK(ends_well(child));
    }
    CHECK(setrlimit(RLIMIT_AS, &now) == 0);
}

int main(void) {
    alarm(LIFETIME);
    keep_heap();
    use_heap();
    if (is_weir()) WAIT_FOR(counters_are_shared());
    beyond_the_limit();
    long most = limit();
    if (most <= 0 || most >= MOST) skip_all("the limit of mappings is unknown, or high");
    long count = 0;
    for (; count < MOST; count++) {
        int protection = count % 2 ? PROT_READ : PROT_NONE;
        mappings[count] = mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mappings[count] == MAP_FAILED) break;
    }
    CHECK(count > 100 && count < MOST);
    for (int left = 0; left < 8; left++) {
        child_goes_on();
        CHECK(munmap(mappings[--count], 4096) == 0);
    }
    use_heap();
    return 0;
}
