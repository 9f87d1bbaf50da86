/* glibc's extensions, and Weir's own header. */
#include "check.h"
#include "weir.h"
#include <fcntl.h>

static void trims(int weir) {
    enum { COUNT = 20000 };
    static void *block[COUNT];
    for (int i = 0; i < COUNT; i++) memset(block[i] = malloc(4000), 1, 4000);
    for (int i = 0; i < COUNT; i++) free(block[i]);
    int first = malloc_trim(0);
    CHECK(first == 0 || first == 1);
    if (weir) {
        /* 80 MB were freed at once: whatever the balancer took by itself, a second trim finds nothing. */
        malloc_trim(0);
        CHECK(malloc_trim(0) == 0);
    }
}

static void numbers(int weir) {
    struct mallinfo2 before = mallinfo2();
    char *small = malloc(50000), *big = malloc(100 << 20);
    CHECK(small && big);
    big[0] = 1;
    struct mallinfo2 after = mallinfo2();
    size_t grown = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
    CHECK(grown >= (100 << 20));
    CHECK(grown < (200 << 20));
    struct mallinfo old = mallinfo();
    CHECK(old.uordblks >= 0 && old.arena >= 0 && old.hblkhd >= 0);
    free(big), free(small);
    struct mallinfo2 end = mallinfo2();
    CHECK(end.uordblks + end.hblkhd < after.uordblks + after.hblkhd - (99 << 20));
}

/* What is in use and what is free are the arena, and each free block is counted. */
static void sums(int weir) {
    enum { COUNT = 4000, SIZE = 500 };
    static void *block[COUNT];
    malloc_trim(0);
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < COUNT; i++) memset(block[i] = malloc(SIZE), 1, SIZE);
    struct mallinfo2 full = mallinfo2();
    for (int i = 0; i < COUNT; i += 2) free(block[i]);
    struct mallinfo2 half = mallinfo2();
    for (int i = 1; i < COUNT; i += 2) free(block[i]);
    struct mallinfo2 none = mallinfo2();
    struct mallinfo2 all[] = {before, full, half, none};
    for (int i = 0; i < 4; i++) {
        CHECK(all[i].arena == all[i].uordblks + all[i].fordblks);
        CHECK(all[i].fsmblks <= all[i].fordblks && all[i].keepcost <= all[i].fordblks);
        CHECK((all[i].hblks == 0) == (all[i].hblkhd == 0));
        /* No block is in a fastbin, also not while CPUs' buckets are full. */
        CHECK(!weir || (all[i].smblks == 0 && all[i].fsmblks == 0));
    }
    CHECK(full.uordblks >= before.uordblks + COUNT * SIZE && full.arena >= full.uordblks);
    CHECK(half.uordblks <= full.uordblks - COUNT / 2 * SIZE * 9 / 10);
    CHECK(half.ordblks + half.smblks >= COUNT / 2 * 9 / 10);
    CHECK(half.fordblks >= COUNT / 2 * SIZE * 9 / 10);
    CHECK(none.uordblks <= before.uordblks + COUNT * SIZE / 10);
    struct mallinfo old = mallinfo();
    CHECK(old.arena == old.uordblks + old.fordblks);
}

/* Enough of a parser to know that tags are balanced and quoted. */
static void well_formed(const char *xml) {
    char stack[32][32];
    int depth = 0, seen = 0;
    for (const char *at = xml; *at; at++) {
        if (*at != '<') { CHECK(*at != '>'); continue; }
        const char *end = strchr(at, '>');
        CHECK(end);
        char name[32] = {0};
        int closing = at[1] == '/';
        CHECK(sscanf(at + 1 + closing, "%31[a-z]", name) == 1);
        int quotes = 0;
        for (const char *c = at; c < end; c++) quotes += *c == '"';
        CHECK(quotes % 2 == 0);
        if (closing) CHECK(depth > 0 && strcmp(stack[--depth], name) == 0);
        else if (end[-1] != '/') strcpy(stack[depth++], name), seen++;
        at = end;
    }
    CHECK(depth == 0 && seen >= 1);
}

static void reports(void) {
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    CHECK(stream && malloc_info(0, stream) == 0 && fclose(stream) == 0);
    CHECK(strncmp(text, "<malloc version=\"1\">", 20) == 0);
    well_formed(text);
    free(text);
    CHECK(malloc_info(1, stdout) != 0);
    int ends[2];
    CHECK(pipe(ends) == 0);
    fflush(stderr);
    int saved = dup(2);
    dup2(ends[1], 2);
    malloc_stats();
    dup2(saved, 2), close(ends[1]);
    char said[4096] = {0};
    CHECK(read(ends[0], said, sizeof said - 1) > 0 && strstr(said, "live bytes"));
}

static void *prints(void *gate) {
    pthread_barrier_wait(gate);
    malloc_stats();
    pthread_testcancel();
    return NULL;
}

/* malloc_stats is no cancellation point: a thread that is to be cancelled prints all of it, and ends after it. */
static void cancelled(int weir) {
    pthread_barrier_t gate;
    pthread_t thread;
    int pipes[2], standard = dup(2);
    CHECK(standard >= 0 && pipe(pipes) == 0 && fcntl(pipes[1], F_SETPIPE_SZ, 1 << 20) > 0 && dup2(pipes[1], 2) == 2);
    close(pipes[1]);
    pthread_barrier_init(&gate, NULL, 2);
    int made = pthread_create(&thread, NULL, prints, &gate);
    int asked = made == 0 ? pthread_cancel(thread) : 0;
    void *result = NULL;
    if (made == 0) {
        pthread_barrier_wait(&gate);
        pthread_join(thread, &result);
    }
    dup2(standard, 2), close(standard);
    CHECK(made == 0 && asked == 0 && result == PTHREAD_CANCELED);
    static char text[1 << 20];
    ssize_t length = 0, more;
    while ((more = read(pipes[0], text + length, sizeof text - 1 - length)) > 0) length += more;
    close(pipes[0]);
    CHECK(strstr(text, weir ? "ITEM" : "max mmap bytes") != NULL);
}

/* 1 where what is asked for holds. */
static void tuning(int weir) {
    CHECK(mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1);
    CHECK(mallopt(M_ARENA_MAX, 1) == 1 && mallopt(M_ARENA_TEST, 8) == 1);
    CHECK(mallopt(M_TOP_PAD, 0) == 1);
    CHECK(mallopt(M_MXFAST, 64) == 1 && mallopt(M_MXFAST, 0) == 1 && mallopt(M_MXFAST, 1 << 20) == 0);
    CHECK(mallopt(M_CHECK_ACTION, 3) == 1 && mallopt(M_PERTURB, 0) == 1);
    if (!weir) return;
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 0 && mallopt(M_TOP_PAD, 1 << 20) == 0);
    CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 0 && mallopt(M_MMAP_MAX, 0) == 0);
    CHECK(mallopt(M_CHECK_ACTION, 0) == 0);
    CHECK(mallopt(-12345, 1) == 0 && mallopt(M_PERTURB, 1) == 0);
}

/* A block of any name may be freed by any name. */
static void aliases(void) {
    void *(*my_malloc)(size_t) = dlsym(RTLD_DEFAULT, "__libc_malloc");
    void (*my_free)(void *) = dlsym(RTLD_DEFAULT, "__libc_free");
    void *(*my_calloc)(size_t, size_t) = dlsym(RTLD_DEFAULT, "__libc_calloc");
    void *(*my_realloc)(void *, size_t) = dlsym(RTLD_DEFAULT, "__libc_realloc");
    void *(*my_memalign)(size_t, size_t) = dlsym(RTLD_DEFAULT, "__libc_memalign");
    void *(*my_valloc)(size_t) = dlsym(RTLD_DEFAULT, "__libc_valloc");
    void *(*my_pvalloc)(size_t) = dlsym(RTLD_DEFAULT, "__libc_pvalloc");
    int (*my_posix)(void **, size_t, size_t) = dlsym(RTLD_DEFAULT, "__posix_memalign");
    CHECK(my_malloc && my_free && my_calloc && my_realloc && my_memalign && my_valloc && my_pvalloc);
    for (int size = 1; size < 5000; size += 7) {
        void *p = my_malloc(size), *q = my_calloc(size, 3), *r = my_memalign(64, size), *s = NULL;
        CHECK(p && all_zero(q, size * 3) && aligned(r, 64));
        fill(p, size, 1);
        CHECK((p = my_realloc(p, size * 2)) && holds(p, size, 1));
        if (my_posix) CHECK(my_posix(&s, 128, size) == 0 && aligned(s, 128));
        free(p), my_free(q), free(r), my_free(s), my_free(malloc(size));
        free(my_valloc(size)), free(my_pvalloc(size));
    }
}

/* weir.h, by dlsym, as a program does that only may run under Weir. */
static void own_header(void) {
    const char *(*version)(void) = dlsym(RTLD_DEFAULT, "weir_version");
    int (*trim)(void) = dlsym(RTLD_DEFAULT, "weir_trim");
    int (*usage)(struct weir_usage *, size_t) = dlsym(RTLD_DEFAULT, "weir_usage");
    CHECK(version && trim && usage);
    CHECK(strcmp(version(), WEIR_VERSION) == 0);
    int went = trim();
    CHECK(went == 0 || went == 1);
    struct { struct weir_usage usage; char later[64]; } newer;
    memset(&newer, 0xff, sizeof newer);
    void *held = malloc(100000);
    CHECK(usage(&newer.usage, sizeof newer) == 0 && all_zero(newer.later, 64));
    CHECK(newer.usage.live_bytes >= 100000);
    size_t older[3] = {7, 7, 7};
    CHECK(usage((struct weir_usage *)older, 2 * sizeof(size_t)) == 0 && older[0] > 7 && older[2] == 7);
    free(held);
    errno = 0;
    CHECK(usage(NULL, 64) == -1 && errno == EINVAL);
}

int main(void) {
    int weir = is_weir();
    numbers(weir);
    sums(weir);
    trims(weir);
    reports();
    cancelled(weir);
    tuning(weir);
    aliases();
    if (weir) own_header();
    return 0;
}
