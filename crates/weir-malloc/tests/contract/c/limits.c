/* Limits of the system are met as the C library meets them. argv[1]: beyond, as, data,
   others-as, others-data, lock or future. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

/* A size beyond all memory is refused where the kernel's heuristic refuses it. */
static void beyond(void) {
    char mode = '?';
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
    if (file) mode = fgetc(file), fclose(file);
    if (mode == '1') puts("SKIPPED: vm.overcommit_memory is 1, so that nothing is refused"), exit(77);
    struct sysinfo info;
    CHECK(sysinfo(&info) == 0);
    size_t size = (info.totalram + info.totalswap) * info.mem_unit + (1 << 30);
    for (; size < (size_t)1 << 47; size *= 16) {
        void *p = (void *)1;
        errno = 0;
        CHECK(malloc(size) == NULL && errno == ENOMEM);
        errno = 0;
        CHECK(calloc(size / 16, 16) == NULL && errno == ENOMEM);
        CHECK(posix_memalign(&p, 2 << 20, size) == ENOMEM && p == (void *)1);
        for (size_t old = 100; old < 20 << 20; old *= 40) {
            unsigned char *block = malloc(old);
            fill(block, old, old), errno = 0;
            CHECK(realloc(block, size) == NULL && errno == ENOMEM && holds(block, old, old));
            free(block);
        }
    }
}

/* Allocates blocks up to `bytes` in all, and frees them; how many were served. */
static size_t served(size_t size, size_t bytes) {
    static void *block[100000];
    size_t most = bytes / size < 100000 ? bytes / size : 100000, count = 0;
    while (count < most && (block[count] = malloc(size))) {
        *(char *)block[count] = ((char *)block[count])[size - 1] = 1;
        count++;
    }
    for (size_t i = 0; i < count; i++) free(block[i]);
    return count;
}

/* A heap that was filled and freed serves blocks that are mapped on their own, and small ones after them. */
static void limited(int resource) {
    struct rlimit limit = {400 << 20, 400 << 20};
    CHECK(setrlimit(resource, &limit) == 0);
    static const size_t small[] = {64, 5000, 100000, 1000000};
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            size_t count = served(small[i], 256 << 20);
            CHECK(count == 100000 || count * small[i] > 200u << 20);
        }
        CHECK(served(5000000, 256 << 20) >= 26);
        CHECK(served(40000000, 256 << 20) >= 3);
    }
}

static void *nothing(void *unused) { return unused; }

/* Whether the program maps memory past malloc: by itself, and for a thread's stack. */
static int maps_others(void) {
    void *own = mmap(NULL, 200 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) return 0;
    pthread_t thread;
    int refused = pthread_create(&thread, NULL, nothing, NULL);
    if (!refused) CHECK(pthread_join(thread, NULL) == 0);
    return munmap(own, 200 << 20) == 0 && !refused;
}

/* A heap that was filled and freed leaves its addresses to what the program maps past malloc: once it is quiet, and as
   soon as the program asks for it. The limit is set while the library is at work already. */
static void others(int resource) {
    struct rlimit limit = {400 << 20, 400 << 20};
    CHECK(served(4000, 20 << 20) && setrlimit(resource, &limit) == 0);
    CHECK(served(4000, 300 << 20) > 70000);
    for (int tries = 0; !maps_others(); tries++) CHECK(tries < 600), usleep(100000);
    CHECK(served(4000, 300 << 20) > 70000);
    malloc_trim(0);
    CHECK(maps_others());
}

/* Bytes of a line of /proc/self/status, or, where `name` is a path, of the mappings of a file. */
static size_t bytes_of(const char *path, const char *name) {
    char line[4096];
    size_t sum = 0, from, to;
    FILE *file = fopen(path, "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, name, strlen(name)) == 0) sum += strtoul(line + strlen(name), NULL, 10) << 10;
        else if (strstr(line, name) && sscanf(line, "%zx-%zx", &from, &to) == 2) sum += to - from;
    }
    return fclose(file), sum;
}

/* After an allocation a process still fits into the 8 MiB that it may lock by default. The library's own code, which is
   large without optimisation, does not count here: a release build has less than 2 MiB. */
static void locked(void) {
    free(malloc(100));
    size_t code = bytes_of("/proc/self/maps", "/libweir.so"), mapped = bytes_of("/proc/self/status", "VmSize:");
    if (mapped - code > 6 << 20) printf("%zu bytes mapped, %zu of them the library\n", mapped, code), CHECK(!"small");
    struct rlimit limit = {8 << 20, 8 << 20};
    if (mapped > 8 << 20 || setrlimit(RLIMIT_MEMLOCK, &limit)) return;
    if (getuid() == 0) CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    CHECK(mlockall(MCL_CURRENT) == 0);
    for (size_t size = 1; size < 30 << 20; size *= 3) free(malloc(size));
}

/* In a process that locks all that it maps, what is mapped ahead is memory: little is. */
static void locked_ahead(void) {
    size_t most = 512 << 20;
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    free(malloc(100));
    /* A process with the right to lock needs no limit for that. */
    setrlimit(RLIMIT_MEMLOCK, &limit);
    void *tried = MAP_FAILED;
    if (mlockall(MCL_FUTURE | MCL_ONFAULT) == 0) tried = mmap(NULL, most, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (tried == MAP_FAILED || munmap(tried, most) || mlockall(MCL_CURRENT | MCL_FUTURE)) {
        puts("SKIPPED: so much may not be locked"), exit(77);
    }
    size_t before = bytes_of("/proc/self/status", "VmLck:"), live = 0;
    while (live < 192 << 20) {
        for (int i = 0; i < 256; i++, live += 4096) CHECK(malloc(4096));
        size_t locked = bytes_of("/proc/self/status", "VmLck:") - before;
        /* A part of them describes the others, and pageblocks have ends. */
        if (locked > live + live / 32 + (12 << 20)) printf("%zu bytes locked for %zu\n", locked, live), CHECK(!"few");
    }
}

int main(int count, char **argv) {
    alarm(250);
    CHECK(count == 2);
    if (strcmp(argv[1], "beyond") == 0) beyond();
    else if (strcmp(argv[1], "as") == 0) limited(RLIMIT_AS);
    else if (strcmp(argv[1], "data") == 0) limited(RLIMIT_DATA);
    else if (strcmp(argv[1], "others-as") == 0) others(RLIMIT_AS);
    else if (strcmp(argv[1], "others-data") == 0) others(RLIMIT_DATA);
    else if (strcmp(argv[1], "lock") == 0) locked();
    else if (strcmp(argv[1], "future") == 0) locked_ahead();
    else CHECK(!"known");
    return 0;
}
