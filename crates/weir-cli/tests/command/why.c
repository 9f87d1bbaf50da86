/* Programs that hold memory, each for one reason, named by the first argument. Prints a line when it is so, and waits. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>
#ifdef OWN_ALLOCATOR
#include "subject/own_allocator.h"
#endif

enum { MIB = 1 << 20, HUGE = 2 << 20 };
static char **object;

static void fill(long bytes, long size) {
    long count = bytes / size;
    object = mmap(NULL, count * sizeof *object, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (object == MAP_FAILED) abort();
    for (long i = 0; i < count; i++) {
        if (!(object[i] = malloc(size))) abort();
        memset(object[i], 1, size);
    }
}

/* All but each `kept`th. */
static void empty(long bytes, long size, long kept) {
    for (long i = 0; i < bytes / size; i++)
        if (kept == 0 || i % kept != 0) free(object[i]);
    munmap(object, bytes / size * sizeof *object);
}

/* Weir's thread starts when something is freed. */
static void hold(long bytes) {
    fill(bytes, 8192);
    fill(8 * MIB, 8192);
    empty(8 * MIB, 8192, 0);
}

static char *map(long bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) abort();
    return at;
}

static void huge(void) {
    char *at = map(66 * MIB);
    at += HUGE - (unsigned long)at % HUGE;
    madvise(at, 64 * MIB, MADV_HUGEPAGE);
    for (long i = 0; i < 64 * MIB; i += HUGE) at[i] = 1;
}

static void own(void) {
    char *at = map(32 * MIB);
    madvise(at, 32 * MIB, MADV_NOHUGEPAGE);
    memset(at, 1, 32 * MIB);
}

/* Among the addresses at which a heap of Weir's may lie, and below its own. */
static void beside(void) {
    char *at = mmap((void *)(22L << 40), 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) abort();
    madvise(at, 32 * MIB, MADV_NOHUGEPAGE);
    memset(at, 1, 32 * MIB);
    hold(8 * MIB);
}

static void sparse(void) {
    char *at = map(8L << 30);
    madvise(at, 8L << 30, MADV_NOHUGEPAGE);
    for (long i = 0; i < 8L << 30; i += HUGE) at[i] = 1;
}

static char *block(long bytes) {
    char *at = malloc(bytes);
    if (!at) abort();
    memset(at, 1, bytes);
    return at;
}

static void *sleeper(void *nothing) {
    for (;;) pause();
}

/* The first MiB of a block is a thread's stack. */
static void inside(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, block(40 * MIB), MIB);
    if (pthread_create(&thread, &attributes, sleeper, NULL) != 0) abort();
    block(30 * MIB);
}

static void child(void) {
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fill(32 * MIB, 10000);
        puts("ready");
        pause();
    }
}

static void cached_file(const char *path) {
    static char block[MIB];
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    memset(block, 1, MIB);
    for (int i = 0; i < 48; i++)
        if (write(fd, block, MIB) != MIB) abort();
}

int main(int count, char **argument) {
    const char *name = argument[1];
    setvbuf(stdout, NULL, _IOLBF, 4096);
    if (strcmp(name, "fragmentation") == 0) {
        fill(40 * MIB, 512);
        empty(40 * MIB, 512, 8);
    } else if (strcmp(name, "idle") == 0) {
        fill(40 * MIB, 32000);
        empty(40 * MIB, 32000, 0);
    } else if (strcmp(name, "huge") == 0) huge();
    else if (strcmp(name, "live") == 0) hold(40 * MIB);
    else if (strcmp(name, "own") == 0) own();
    else if (strcmp(name, "beside") == 0) beside();
    else if (strcmp(name, "block") == 0) block(64 * MIB);
    else if (strcmp(name, "stack-in-block") == 0) inside();
    else if (strcmp(name, "locked") == 0) {
        char *at = malloc(6 * MIB);
        memset(at, 1, 6 * MIB);
        if (mlock(at, 6 * MIB) != 0) puts("refused");
    } else if (strcmp(name, "sparse") == 0) sparse();
    else if (strcmp(name, "file") == 0) cached_file(argument[2]);
    else if (strcmp(name, "child") == 0) {
        child();
        pause();
    } else if (strcmp(name, "leak") == 0) {
        hold(8 * MIB);
        puts("ready");
        getchar();
        fill(2 * MIB, 1000);
        pause();
    } else abort();
    puts("ready");
    pause();
}
