/* Allocates known bytes by known stacks, and leaves by exit: the test reads the profile. */
#include "check.h"

#include "weir.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define BLOCKS 64
#define NOINLINE __attribute__((noinline, noclone))

static void *kept[8][BLOCKS];

/* Each maker is a frame that the profile names; the empty assembly keeps its call from becoming a jump. */
NOINLINE static void make_malloc(int n) {
    kept[0][n] = malloc(1000);
    __asm__ volatile("");
}
NOINLINE static void make_calloc(int n) {
    char *block = kept[1][n] = calloc(30, 100);
    for (int at = 0; at < 3000; at++) CHECK(block[at] == 0);
}
NOINLINE static void make_aligned(int n) {
    kept[2][n] = aligned_alloc(8192, 20000);
    CHECK((uintptr_t)kept[2][n] % 8192 == 0);
}
NOINLINE static void make_large(int n) {
    kept[3][n] = malloc(5 << 20);
    __asm__ volatile("");
}
NOINLINE static void make_first(int n) {
    kept[4][n] = malloc(500);
    memset(kept[4][n], n + 1, 500);
}
NOINLINE static void make_again(int n, size_t size) {
    unsigned char *block = kept[4][n] = realloc(kept[4][n], size);
    for (size_t at = 0; at < (size < 500 ? size : 500); at++) CHECK(block[at] == n + 1);
}
NOINLINE static void make_freed(int n) {
    void *block = malloc(2000 + n);
    CHECK(malloc_usable_size(block) >= (size_t)(2000 + n));
    free(block);
}
NOINLINE static void make_posix(int n) {
    CHECK(posix_memalign(&kept[5][n], 64, 700) == 0 && (uintptr_t)kept[5][n] % 64 == 0);
}

static void *in_thread(void *argument) {
    (void)argument;
    for (int n = 0; n < BLOCKS; n++) make_malloc(n);
    return NULL;
}

/* Blocks of other threads, resized ones, freed ones: half of each kind is live at the end. */
static void all_kinds(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    for (int n = 0; n < BLOCKS; n++) {
        make_calloc(n);
        make_aligned(n);
        make_first(n);
        make_again(n, n % 2 ? 40000 : 480);
        make_freed(n);
        make_posix(n);
        if (n < 4) make_large(n);
    }
    for (int n = 0; n < BLOCKS; n += 2)
        for (int kind = 0; kind < 6; kind++) free(kept[kind][n]);
}

static void set_mean(uint64_t mean) { set("profile_bytes", mean); }

/* Off at first, on, off, and on again; half of what was made meanwhile is freed at the end. */
static void switched(void) {
    for (int n = 0; n < BLOCKS; n++) {
        set_mean(n % 4 == 1 ? 1 : 0);
        /* A thread's count goes on from where it was, which is a byte or two at this mean. */
        if (n % 4 == 1) free(malloc(4000));
        make_malloc(n);
    }
    set_mean(0);
    for (int n = 0; n < BLOCKS / 2; n++) free(kept[0][n]);
}

/* Parent and child write a file each; the child's has what the parent had, and its own. */
static void forked(void) {
    for (int n = 0; n < 8; n++) make_malloc(n);
    pid_t child = fork();
    if (child == 0) {
        for (int n = 0; n < 4; n++) free(kept[0][n]);
        for (int n = 0; n < 16; n++) make_aligned(n);
        exit(0);
    }
    CHECK(ends_well(child));
    make_large(0);
}

static void *brief(void *argument) {
    make_malloc((int)(intptr_t)argument % BLOCKS);
    free(kept[0][(intptr_t)argument % BLOCKS]);
    return NULL;
}

/* Threads that come and go: each has a count of its own. */
static void threads(void) {
    for (intptr_t n = 0; n < 10000; n++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, brief, (void *)n) == 0 && pthread_join(thread, NULL) == 0);
    }
}

/* At a mean of some kilobytes: a million allocations by a thread, through the fast path. */
static void many(void) {
    for (int round = 0; round < 1000; round++)
        for (int n = 0; n < BLOCKS; n++) {
            free(kept[0][n]);
            make_malloc(n);
        }
}

/* The name of this process's profile has something else before it ends: a file that all may read, which has a second name, the
   profile's with ".kept" behind it; or a FIFO, which nobody reads. */
static void taken(int is_fifo) {
    char name[4096], kept_name[4096];
    CHECK(snprintf(name, sizeof name, "%s.%d", getenv("WEIR_PROFILE"), (int)getpid()) < 4000);
    make_malloc(0);
    if (is_fifo) {
        CHECK(mkfifo(name, 0666) == 0);
        return;
    }
    snprintf(kept_name, sizeof kept_name, "%s.kept", name);
    int file = open(name, O_WRONLY | O_CREAT, 0666);
    CHECK(file >= 0 && fchmod(file, 0666) == 0 && write(file, "kept", 4) == 4 && close(file) == 0);
    CHECK(link(name, kept_name) == 0);
}

/* No file may grow: the profile's end is no signal's. */
static void no_file(void) {
    struct rlimit length;
    make_malloc(0);
    CHECK(getrlimit(RLIMIT_FSIZE, &length) == 0);
    length.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_FSIZE, &length) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    if (!strcmp(arguments[1], "kinds")) all_kinds();
    else if (!strcmp(arguments[1], "switched")) switched();
    else if (!strcmp(arguments[1], "forked")) forked();
    else if (!strcmp(arguments[1], "threads")) threads();
    else if (!strcmp(arguments[1], "many")) many();
    else if (!strcmp(arguments[1], "taken")) taken(0);
    else if (!strcmp(arguments[1], "fifo")) taken(1);
    else if (!strcmp(arguments[1], "no-file")) no_file();
    else return 2;
    return 0;
}
