// Stacks without frame pointers, for tests/unwind.rs, which opens this as a library. Each function here calls `f` from a
// frame of a kind of its own.
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

typedef void (*callback)(void);

static volatile int sink;
static callback wanted;

// A frame the size of which is known at run time only, as its calls are not tail calls.
__attribute__((noinline)) void deep(callback f, int depth) {
    char *local = alloca(16 + (depth & 3) * 64);
    memset(local, depth, 16);
    if (depth == 0) {
        f();
    } else {
        deep(f, depth - 1);
    }
    sink += local[3];
}

// A stack that is aligned anew: its caller's frame is known by an expression.
__attribute__((noinline)) void aligned(callback f, int depth) {
    _Alignas(64) char local[64];
    char *more = alloca(depth + 1);
    local[0] = more[0] = (char)depth;
    if ((uintptr_t)local % 64 == 0) {
        deep(f, depth);
    }
    sink += local[0] + more[0];
}

// A frame of more than a page, of which nothing was touched.
__attribute__((noinline)) void large(callback f, int depth) {
    volatile char local[200000];
    local[0] = 1;
    deep(f, depth);
    sink += local[0];
}

static void handler(int signal) {
    (void)signal;
    wanted();
    sink++;
}

// Raises a signal, which is handled on this stack, or on one of its own.
void in_handler(callback f, int on_own_stack) {
    static char own[64 << 10];
    stack_t stack = {.ss_sp = own, .ss_size = sizeof own}, old;
    struct sigaction action = {.sa_handler = handler, .sa_flags = on_own_stack ? SA_ONSTACK : 0}, before;
    wanted = f;
    sigaltstack(&stack, &old);
    sigaction(SIGUSR2, &action, &before);
    raise(SIGUSR2);
    sigaction(SIGUSR2, &before, 0);
    sigaltstack(&old, 0);
}

static void *thread(void *f) {
    deep((callback)f, 3);
    return 0;
}

// In a thread with the smallest stack that libc takes.
int in_small_thread(callback f) {
    pthread_attr_t attributes;
    pthread_t id;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, 16384) || pthread_create(&id, &attributes, thread, (void *)f)) {
        return 1;
    }
    return pthread_join(id, 0);
}

static ucontext_t outside, inside;

static void coroutine(void) {
    deep(wanted, 3);
}

// On a stack of the program's own.
void in_coroutine(callback f) {
    static char stack[64 << 10];
    wanted = f;
    getcontext(&inside);
    inside.uc_stack = (stack_t){.ss_sp = stack, .ss_size = sizeof stack};
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    swapcontext(&outside, &inside);
}

// With `value` in place of return addresses and saved registers: of this function's, and of its callers' as far as 24 words
// reach. All of them are put back before anything returns.
__attribute__((noinline)) void corrupt(callback f, uintptr_t value) {
    volatile uintptr_t saved[24], *frame = __builtin_frame_address(0);
    for (int at = 0; at < 24; at++) {
        saved[at] = frame[at];
        frame[at] = value;
    }
    f();
    for (int at = 0; at < 24; at++) {
        frame[at] = saved[at];
    }
}

// With garbage in the frame pointer's register, from a frame that does not use it as such.
__attribute__((noinline)) void frame_pointer(callback f, uintptr_t value) {
    __asm__ volatile("push %%rbp\n\tmov %1, %%rbp\n\tcall *%0\n\tpop %%rbp"
                     :
                     : "r"(f), "r"(value)
                     : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}
