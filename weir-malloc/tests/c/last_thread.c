/* A program whose last thread ends by pthread_exit while Weir's threads for callbacks have just been made: it ends all the
 * same. This file's pthread_create stands before libc's, and has threads that Weir makes begin late. */
#include "check.h"

#include "weir.h"

static int (*real_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static volatile int delays;

struct late {
    void *(*body)(void *);
    void *argument;
};

static void *begin_late(void *at) {
    struct late late = *(struct late *)at;
    usleep(500000);
    return late.body(late.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
    static struct late all[16];
    static int count;
    if (!delays) return real_create(thread, attributes, body, argument);
    int i = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    CHECK(i < 16);
    all[i] = (struct late){body, argument};
    return real_create(thread, attributes, begin_late, &all[i]);
}

static size_t count(void *data) { return 0; }
static size_t scan(size_t bytes, int reason, void *data) { return 0; }

static __typeof__(&weir_shrinker_register) p_register;

int main(void) {
    if (!is_weir()) return 0;
    /* Where the kernel does not report a thread's end, Weir looks again after a minute. */
    alarm(40);
    CHECK(real_create = (__typeof__(real_create))dlsym(RTLD_NEXT, "pthread_create"));
    CHECK(p_register = (__typeof__(p_register))dlsym(RTLD_DEFAULT, "weir_shrinker_register"));
    delays = 1;
    struct weir_shrinker shrinker = {.name = "late", .count = count, .scan = scan};
    for (int own = 0; own < 2; own++) {
        shrinker.thread = own ? WEIR_THREAD_OWN : WEIR_THREAD_SHARED;
        CHECK(p_register(&shrinker, sizeof shrinker));
    }
    /* The background thread is there by now, and looks for the program's last thread as this one ends. */
    usleep(100000);
    pthread_exit(NULL);
}
