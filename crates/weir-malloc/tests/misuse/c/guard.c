// Errors in guarded blocks, one for each argument, for guard.rs; each prints the block's address first. What the
// program does otherwise must be as without guarding.
#include "check.h"
#include <setjmp.h>
#include <signal.h>

static volatile char sink;

__attribute__((noinline)) char *allocate_here(size_t size) {
    char *block = malloc(size);
    printf("%p\n", block);
    fflush(stdout);
    return block;
}

__attribute__((noinline)) void free_here(void *block) {
    free(block);
}

// Guards one allocation in `every` from now on.
static void guard(uint64_t every) { set("guard_every", every); }

static sigjmp_buf back;
static volatile sig_atomic_t caught;

static void handler(int number, siginfo_t *info, void *context) {
    caught = info->si_addr != 0 && context != 0 && number == SIGSEGV;
    siglongjmp(back, 1);
}

static void plain_handler(int number) {
    caught = number;
    siglongjmp(back, 1);
}

// Where a handler's frame is.
static char *volatile place;

static void note_place(int number) {
    (void)number;
    place = __builtin_frame_address(0);
}

// The first address past or before the block that lies in another page than it.
static char *past(char *block, size_t size) {
    return (char *)(((uintptr_t)block + size - 1) / 4096 * 4096 + 4096);
}

static char *before(char *block) {
    return (char *)((uintptr_t)block / 4096 * 4096 - 1);
}

static void *free_in_thread(void *block) {
    free_here(block);
    return 0;
}

// Blocks of all sizes and forms, used as they may be; more at a time than there are pages for.
static void use_blocks(void) {
    char *blocks[400];
    for (int round = 0; round < 10; round++) {
        for (int at = 0; at < 400; at++) {
            size_t size = (size_t)(at * 37 + round) % 5000;
            char *block = at % 3 == 0 ? calloc(1, size) : at % 3 == 1 ? malloc(size) : aligned_alloc(64, size);
            CHECK(block && malloc_usable_size(block) >= size);
            CHECK((uintptr_t)block % (at % 3 == 2 ? 64 : 16) == 0);
            for (size_t byte = 0; at % 3 == 0 && byte < size; byte++) {
                CHECK(block[byte] == 0);
            }
            memset(block, at, size);
            blocks[at] = block;
        }
        for (int at = 0; at < 400; at++) {
            size_t size = (size_t)(at * 37 + round) % 5000, more = size * 2 + 1;
            if (at % 4 == 0) {
                blocks[at] = realloc(blocks[at], more);
                CHECK(blocks[at]);
                for (size_t byte = 0; byte < size; byte++) {
                    CHECK(blocks[at][byte] == (char)at);
                }
                memset(blocks[at], 1, more);
            }
            free(blocks[at]);
        }
    }
}

static void *use_in_thread(void *unused) {
    use_blocks();
    return unused;
}

static void use_all(void) {
    pthread_t threads[3];
    for (int at = 0; at < 3; at++) {
        CHECK(pthread_create(&threads[at], 0, use_in_thread, 0) == 0);
    }
    for (int child = 0; child < 5; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            use_blocks();
            _exit(0);
        }
        CHECK(ends_well(pid));
    }
    for (int at = 0; at < 3; at++) {
        CHECK(pthread_join(threads[at], 0) == 0);
    }
}

int main(int count, char **arguments) {
    const char *what = arguments[1];
    if (!strcmp(what, "used-rightly")) {
        use_all();
        return 0;
    }
    size_t size = 100;
    char *block = allocate_here(size);
    if (!strcmp(what, "overflow")) {
        *past(block, size) = 1;
    } else if (!strcmp(what, "overflow-read")) {
        sink = *past(block, size);
    } else if (!strcmp(what, "underflow")) {
        *before(block) = 1;
    } else if (!strcmp(what, "off-by-one")) {
        block[size] = 1;
        free_here(block);
    } else if (!strcmp(what, "read-after-free")) {
        free_here(block);
        sink = block[7];
    } else if (!strcmp(what, "write-after-free")) {
        pthread_t thread;
        CHECK(pthread_create(&thread, 0, free_in_thread, block) == 0 && pthread_join(thread, 0) == 0);
        block[7] = 1;
    } else if (!strcmp(what, "double-free")) {
        free_here(block);
        free_here(block);
    } else if (!strcmp(what, "interior")) {
        free_here(block + 16);
    } else if (!strcmp(what, "realloc-after-free")) {
        free_here(block);
        CHECK(realloc(block, 200) == 0);
    } else if (!strcmp(what, "handler-first")) {
        // Set before guarding is switched on, so Weir's stands before it.
        struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
        CHECK(sigaction(SIGSEGV, &action, 0) == 0);
        guard(1);
        block = allocate_here(size);
        if (!sigsetjmp(back, 1)) {
            *past(block, size) = 1;
        }
        CHECK(caught == 1);
        // One of one argument, and a fault that is not Weir's to explain.
        guard(0);
        struct sigaction now;
        CHECK(sigaction(SIGSEGV, 0, &now) == 0 && now.sa_sigaction == handler);
        CHECK(signal(SIGSEGV, plain_handler) != SIG_ERR);
        guard(1);
        if (!sigsetjmp(back, 1)) {
            *(volatile char *)8 = 1;
        }
        CHECK(caught == SIGSEGV);
    } else if (!strcmp(what, "small-stack")) {
        // As small a stack for signals as may be, with memory of the program's below it.
        static char room[128 << 10] __attribute__((aligned(64)));
        stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
        struct sigaction action = {.sa_handler = note_place, .sa_flags = SA_ONSTACK};
        CHECK(sigaltstack(&stack, 0) == 0 && sigaction(SIGUSR1, &action, 0) == 0 && raise(SIGUSR1) == 0);
        // The loader takes much stack where it looks a function up at its first call.
        if (!sigsetjmp(back, 1)) {
            siglongjmp(back, 1);
        }
        // What the kernel puts there depends on the processor.
        size_t kernels = room + sizeof room - place, below = sizeof room - (kernels + 2048 + 63) / 64 * 64;
        memset(room, 0x5a, below);
        stack = (stack_t){.ss_sp = room + below, .ss_size = sizeof room - below};
        action = (struct sigaction){.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
        CHECK(sigaltstack(&stack, 0) == 0 && sigaction(SIGSEGV, &action, 0) == 0);
        guard(1);
        block = allocate_here(size);
        if (!sigsetjmp(back, 1)) {
            *past(block, size) = 1;
        }
        CHECK(caught == 1);
        for (size_t byte = 0; byte < below; byte++) {
            CHECK(room[byte] == 0x5a);
        }
    } else if (!strcmp(what, "handler-later")) {
        // Takes the place of Weir's, and is left alone.
        struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, now;
        CHECK(sigaction(SIGSEGV, &action, 0) == 0);
        if (!sigsetjmp(back, 1)) {
            *past(block, size) = 1;
        }
        CHECK(caught == 1);
        // Nor is another put before it, which the program's may call as the one that it found.
        guard(2);
        CHECK(sigaction(SIGSEGV, 0, &now) == 0 && now.sa_sigaction == handler);
        guard(0);
        CHECK(sigaction(SIGSEGV, 0, &now) == 0 && now.sa_sigaction == handler);
    } else if (!strcmp(what, "sent")) {
        raise(SIGSEGV);
    } else if (!strcmp(what, "off")) {
        struct sigaction now;
        CHECK(sigaction(SIGSEGV, 0, &now) == 0 && now.sa_handler == SIG_DFL);
        // The block is on a page with others.
        char *other = malloc(size);
        CHECK((uintptr_t)other / 4096 == (uintptr_t)block / 4096 || labs(other - block) < 65536);
    } else {
        return 3;
    }
    return 0;
}
