/* A program that does what its standard input says, a line at a time, and answers each by a line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef OWN_ALLOCATOR
#include "own_allocator.h"
#endif

enum { BLOCK = 24 << 10, MOST = 1 << 16 };
static char *block[MOST];
static int blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void hold(long mib) {
    for (long bytes = 0; bytes < mib << 20 && blocks < MOST; bytes += BLOCK) {
        char *fresh = malloc(BLOCK);
        if (!fresh) abort();
        memset(fresh, 1, BLOCK);
        pthread_mutex_lock(&lock);
        block[blocks++] = fresh;
        pthread_mutex_unlock(&lock);
    }
}

static void drop(int left) {
    pthread_mutex_lock(&lock);
    while (blocks > left) free(block[--blocks]);
    pthread_mutex_unlock(&lock);
}

static void drop_all(void) {
    drop(0);
}

/* Weir's thread starts when something is freed. */
static void hold_and_free_some(long mib) {
    hold(mib);
    int held = blocks;
    hold(mib > 0 ? 8 : 0);
    drop(held);
}

/* What is held from here on is a cache of the program's, which frees what came last. */
static int cache_from;

static size_t cached(void *unused) {
    pthread_mutex_lock(&lock);
    size_t bytes = (size_t)(blocks - cache_from) * BLOCK;
    pthread_mutex_unlock(&lock);
    return bytes;
}

static size_t evict(size_t bytes, int reason, void *unused) {
    size_t done = 0;
    pthread_mutex_lock(&lock);
    for (; done < bytes && blocks > cache_from; done += BLOCK) free(block[--blocks]);
    pthread_mutex_unlock(&lock);
    return done;
}

/* One that takes its time: a block of a MiB in 50 ms. */
static size_t cached_slowly(void *unused) {
    pthread_mutex_lock(&lock);
    size_t bytes = (size_t)(blocks - cache_from) << 20;
    pthread_mutex_unlock(&lock);
    return bytes;
}

static size_t evict_slowly(size_t bytes, int reason, void *unused) {
    usleep(50000);
    pthread_mutex_lock(&lock);
    int has_some = blocks > cache_from;
    if (has_some) free(block[--blocks]);
    pthread_mutex_unlock(&lock);
    return has_some ? 1 << 20 : 0;
}

static int cache(long mib, int is_slow) {
    /* As weir.h has it. */
    struct shrinker {
        const char *name;
        size_t (*count)(void *);
        size_t (*scan)(size_t, int, void *);
        void (*relieved)(void *);
        void *data;
        size_t batch;
        unsigned seeks, thread;
        void *queue;
    } shrinker = {.name = "subject", .count = cached, .scan = evict};
    if (is_slow) {
        shrinker.count = cached_slowly;
        shrinker.scan = evict_slowly;
        shrinker.batch = 1 << 20;
    }
    void *(*add)(const void *, size_t) = (void *(*)(const void *, size_t))dlsym(RTLD_DEFAULT, "weir_shrinker_register");
    cache_from = blocks;
    if (is_slow) {
        for (; mib > 0; mib--) memset(block[blocks++] = malloc(1 << 20), 1, 1 << 20);
    } else hold(mib);
    return add && add(&shrinker, sizeof shrinker);
}

/* An evictable cache of Weir's with so many MiB, in which each key is then found so often. */
static int evictable(long mib, long hits) {
    static const char *const names[] = {"create", "prepare", "value", "publish", "release", "get"};
    void *call[6];
    for (int i = 0; i < 6; i++) {
        char name[40];
        snprintf(name, sizeof name, "weir_evictable_%s", names[i]);
        if (!(call[i] = dlsym(RTLD_DEFAULT, name))) return 0;
    }
    /* The first of its options, as of an older header: 33 bytes, of which 31 end within a character. */
    const char *name = "\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341\u767e";
    void *cache = ((void *(*)(const char **, size_t))call[0])(&name, sizeof name);
    for (long key = 0; cache && key < mib * 16; key++) {
        size_t size;
        void *entry = ((void *(*)(void *, void *, size_t, size_t))call[1])(cache, &key, sizeof key, 64 << 10);
        if (!entry) return 0;
        void *value = ((void *(*)(void *, void *, size_t *))call[2])(cache, entry, &size);
        memset(value, 1, size);
        ((int (*)(void *, void *))call[3])(cache, entry);
        ((void (*)(void *, void *))call[4])(cache, entry);
    }
    for (long hit = 0; cache && hit < hits * mib * 16; hit++) {
        long key = hit % (mib * 16);
        void *entry = ((void *(*)(void *, void *, size_t))call[5])(cache, &key, sizeof key);
        if (!entry) return 0;
        ((void (*)(void *, void *))call[4])(cache, entry);
    }
    return cache != NULL;
}

static void *sleep_for_ever(void *unused) {
    for (;;) pause();
    return unused;
}

static int start_threads(int count) {
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (int n = 0; n < count; n++) {
        if (pthread_create(&thread, &small, sleep_for_ever, NULL)) return n;
    }
    return count;
}

/* What a program that this one executes has open. */
static void show_descriptors_of_a_child(void) {
    char names[4000] = "";
    FILE *list = popen("exec ls -C -w 0 /proc/self/fd", "r");
    puts(list && fgets(names, sizeof names, list) ? strtok(names, "\n") : "none");
    if (list) pclose(list);
}

static int set_filter(struct sock_filter *instructions, int count) {
    struct sock_fprog program = {count, instructions};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

/* A filter that allows everything: what Weir sees is that the program has set one. */
static int filter(void) {
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return set_filter(&allow, 1);
}

/* A filter for all threads that ends the process when one of them sends a message. */
static int filter_messages(void) {
    struct sock_filter instructions[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the number of the call */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return set_filter(instructions, 4);
}

static void serve(void);

static void *serve_to_the_end(void *unused) {
    serve();
    exit(0);
}

/* Another thread goes on, and the main thread ends. */
static void leave(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve_to_the_end, NULL)) abort();
    pthread_exit(NULL);
}

static void serve(void) {
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "hold ", 5) == 0) hold_and_free_some(atol(line + 5));
        else if (strcmp(line, "drop\n") == 0) drop_all();
        else if (strncmp(line, "cache ", 6) == 0) {
            puts(cache(atol(line + 6), 0) ? "done" : "refused");
            continue;
        } else if (strncmp(line, "slow cache ", 11) == 0) {
            puts(cache(atol(line + 11), 1) ? "done" : "refused");
            continue;
        } else if (strncmp(line, "evictable ", 10) == 0) {
            char *end;
            long mib = strtol(line + 10, &end, 10);
            puts(evictable(mib, atol(end)) ? "done" : "refused");
            continue;
        } else if (strcmp(line, "lock\n") == 0) {
            struct rlimit little = {1 << 20, 1 << 20};
            puts(setrlimit(RLIMIT_MEMLOCK, &little) == 0 && mlockall(MCL_CURRENT | MCL_FUTURE) == 0 ? "done" : "refused");
            continue;
        } else if (strcmp(line, "filter\n") == 0) {
            puts(filter() ? "done" : "refused");
            continue;
        } else if (strcmp(line, "filter messages\n") == 0) {
            puts(filter_messages() ? "done" : "refused");
            continue;
        } else if (strcmp(line, "descriptors\n") == 0) {
            for (int fd = 3; fd < 1000; fd++) close(fd);
        } else if (strcmp(line, "occupy\n") == 0) {
            for (int fd = 3; fd < 1000; fd++) dup2(0, fd);
        } else if (strncmp(line, "user ", 5) == 0) {
            uid_t user = atoi(line + 5);
            puts(setresuid(user, user, user) == 0 ? "done" : "refused");
            continue;
        } else if (strncmp(line, "chroot ", 7) == 0) {
            strtok(line, "\n");
            puts(chroot(line + 7) == 0 && chdir("/") == 0 ? "done" : "refused");
            continue;
        } else if (strcmp(line, "execute\n") == 0) {
            show_descriptors_of_a_child();
            continue;
        } else if (strncmp(line, "threads ", 8) == 0) {
            printf("%d\n", start_threads(atoi(line + 8)));
            continue;
        } else if (strcmp(line, "fork\n") == 0) {
            pid_t child = fork();
            if (child == 0) {
                drop_all();
                hold_and_free_some(30);
                pause();
            }
            printf("%d\n", child);
            continue;
        } else if (strcmp(line, "leave\n") == 0) {
            puts("done");
            leave();
        } else abort();
        puts("done");
    }
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 4096);
    serve();
    return 0;
}
