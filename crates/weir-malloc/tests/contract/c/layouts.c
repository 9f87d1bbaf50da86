/* A program in one of the other layouts of the address space: the heap and mmap's area are apart, and all works. */
#include "check.h"
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

static void again(const char *layout) {
    if (strcmp(layout, "legacy") == 0) {
        int now = personality(0xffffffff);
        if (now == -1 || personality(now | ADDR_COMPAT_LAYOUT) == -1) skip_all("the layout may not be chosen");
    } else {
        struct rlimit stack = {RLIM_INFINITY, RLIM_INFINITY};
        if (setrlimit(RLIMIT_STACK, &stack) != 0) skip_all("the stack's limit may not be raised");
    }
    execl("/proc/self/exe", "layouts", layout, "chosen", NULL);
    skip_all("no program can be executed");
}

static void apart(void) {
    char *small = malloc(100), *run = malloc(100 * 1024), *own = malloc(8 * MIB);
    CHECK(small && run && own);
    char *mapped = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    /* 20.3 and less, or 42.7 and more, or below the stack; the heap between them, in 4 TiB. */
    uintptr_t others[] = {(uintptr_t)own, (uintptr_t)mapped, (uintptr_t)&apart, (uintptr_t)&small};
    uintptr_t heap[] = {(uintptr_t)small, (uintptr_t)run};
    for (int i = 0; is_weir() && i < 2; i++) {
        CHECK(heap[i] >> 40 >= 22 && heap[i] >> 40 < 42);
        for (int j = 0; j < 4; j++) CHECK(others[j] >> 40 < 22 || others[j] >> 40 >= 42);
    }
    munmap(mapped, 4096);
    free(small), free(run), free(own);
}

/* Blocks of every kind, by turns, filled and checked: mmap's area is used as the heap grows. */
static void churn(void) {
    enum { HELD = 64, TURNS = 4000 };
    struct { char *at; size_t len; } held[HELD] = {0};
    uint64_t random = 42;
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t n = next_random(&random);
        int i = n % HELD;
        size_t len = (size_t)1 << (4 + (n >> 8) % 20);
        len += (n >> 16) % len;
        if (held[i].at) {
            CHECK(malloc_usable_size(held[i].at) >= held[i].len);
            CHECK(holds(held[i].at, held[i].len < 64 ? held[i].len : 64, i));
        }
        if (n >> 60 < 4 && held[i].at) {
            held[i].at = realloc(held[i].at, len);
        } else {
            free(held[i].at);
            held[i].at = malloc(len);
        }
        CHECK(held[i].at != NULL);
        held[i].len = len;
        fill(held[i].at, len < 64 ? len : 64, i);
    }
    for (int i = 0; i < HELD; i++) free(held[i].at);
}

static void *thread(void *none) {
    churn();
    return none;
}

int main(int count, char **arguments) {
    if (count < 3) again(arguments[1]);
    apart();
    churn();
    /* A thread's stack is as large as the limit for stacks, or 2 MiB where there is none. */
    pthread_t other;
    CHECK(pthread_create(&other, NULL, thread, NULL) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    return 0;
}
