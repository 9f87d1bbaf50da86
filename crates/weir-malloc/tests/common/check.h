/* Parts that the test programs share. Included first: it asks for all of libc's declarations. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static inline void check_failed(const char *file, int line, const char *condition) {
    dprintf(2, "%s:%d: CHECK(%s) failed, errno %d\n", file, line, condition, errno);
    _exit(1);
}
#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))

/* Bounds that only a program that hangs comes to, however slow the machine is, s. One is of a single wait, the other of a
 * process, which sets it by alarm(). The harness's own bound is beyond them. */
enum { PATIENCE = 300, LIFETIME = 550 };

static inline double now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Waits for an event that is sure to come. It is looked for once more after the bound, as the machine may have stood still
   meanwhile. */
#define WAIT_FOR(condition)                                                                                            \
    do {                                                                                                               \
        double begin_ = now();                                                                                         \
        int is_late_ = 0;                                                                                              \
        while (!(condition)) {                                                                                         \
            if (is_late_) check_failed(__FILE__, __LINE__, "waited too long for " #condition);                         \
            is_late_ = now() - begin_ >= PATIENCE;                                                                     \
            usleep(2000);                                                                                              \
        }                                                                                                              \
    } while (0)

/* Waits for a child, as fork() gave it: whether there is one, and it ends as it should. */
static inline int ends_well(pid_t child) {
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* A test that cannot be made here, or a part of it: `why` goes into the gate's list of skips. The program's end by
   skip_all() is no success. */
static inline void skip_part(const char *why) { dprintf(1, "SKIPPED: %s\n", why); }
__attribute__((noreturn)) static inline void skip_all(const char *why) {
    skip_part(why);
    _exit(77);
}

/* Whether Weir is under test: where the standards leave a choice, other libraries chose otherwise. */
static inline int is_weir(void) {
    const char *expect = getenv("EXPECT_WEIR");
    return expect && *expect == '1';
}

/* A test that silently ran on the system's malloc would prove nothing. */
__attribute__((constructor)) static void expect_weir(void) {
    if (!is_weir()) return;
    Dl_info of_malloc, of_weir; /* not of malloc or calloc themselves: tests have their own */
    void *version = dlsym(RTLD_DEFAULT, "weir_version");
    CHECK(version != NULL);
    CHECK(dladdr(version, &of_weir) != 0);
    CHECK(dladdr(dlsym(RTLD_DEFAULT, "posix_memalign"), &of_malloc) != 0);
    CHECK(of_malloc.dli_fbase == of_weir.dli_fbase);
}

/* Defines p_NAME, weir.h's function of that name, as programs are not linked with the library. Under another malloc it is null. */
#define NAMED(name)                                                                                                    \
    static __typeof__(&weir_##name) p_##name;                                                                          \
    __attribute__((constructor)) static void look_up_##name(void) {                                                    \
        p_##name = (__typeof__(p_##name))dlsym(RTLD_DEFAULT, "weir_" #name);                                           \
        CHECK(p_##name || !is_weir());                                                                                 \
    }

/* Under another malloc nothing is set. */
static inline void set(const char *name, uint64_t value) {
    int (*ctl)(const char *, void *, size_t *, const void *, size_t) = (__typeof__(ctl))dlsym(RTLD_DEFAULT, "weir_ctl");
    CHECK(ctl ? ctl(name, NULL, NULL, &value, sizeof value) == 0 : !is_weir());
}

/* Stalls of the machine that the tests run on are no pressure for a program that makes its own. */
static inline void ignore_stalls(void) { set("psi_some_us", 10000000), set("psi_full_us", 10000000); }

/* The byte at `i` of a block that was given the number `seed`. */
static inline unsigned char pattern(uint64_t seed, size_t i) {
    return (unsigned char)((seed * 0x9e3779b97f4a7c15u >> 32) + i * 31 + (i >> 8));
}
/* Rows of 256 bytes of the pattern all lie in one table: 223 * 31 is one more than a multiple of 256. */
#define P1_(i) (unsigned char)((i) * 31)
#define P8_(i) P1_(i), P1_(i + 1), P1_(i + 2), P1_(i + 3), P1_(i + 4), P1_(i + 5), P1_(i + 6), P1_(i + 7)
#define P64_(i) P8_(i), P8_(i + 8), P8_(i + 16), P8_(i + 24), P8_(i + 32), P8_(i + 40), P8_(i + 48), P8_(i + 56)
static const unsigned char rows_[512] = {P64_(0),   P64_(64),  P64_(128), P64_(192),
                                         P64_(256), P64_(320), P64_(384), P64_(448)};
static inline const unsigned char *row_(uint64_t seed, size_t at) {
    return rows_ + (unsigned char)(((seed * 0x9e3779b97f4a7c15u >> 32) + (at >> 8)) * 223);
}
static inline size_t row_length_(size_t size, size_t at) { return size - at < 256 ? size - at : 256; }
static inline void fill(void *block, size_t size, uint64_t seed) {
    for (size_t at = 0; at < size; at += 256) memcpy((char *)block + at, row_(seed, at), row_length_(size, at));
}
static inline int holds(const void *block, size_t size, uint64_t seed) {
    for (size_t at = 0; at < size; at += 256)
        if (memcmp((const char *)block + at, row_(seed, at), row_length_(size, at))) return 0;
    return 1;
}
static inline int all_zero(const void *block, size_t size) {
    const char *bytes = (const char *)block;
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}
/* Bytes of this process that are resident. */
static inline size_t resident_bytes(void) {
    size_t all, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%zu %zu", &all, &pages) == 2);
    fclose(file);
    return pages * 4096;
}

static inline int aligned(const void *block, size_t align) { return ((uintptr_t)block & (align - 1)) == 0; }

/* A small generator of its own: rand() takes a lock. */
static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}
