/* Threads that allocate under a lock which fork takes as well. The first argument says which lock, the second how many
 * milliseconds. A fork must go on, and its children must be able to use what the lock guards. A fork that hangs is ended by an
 * alarm. */
#include "check.h"
#include <netdb.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>

#define THREADS 4
/* Forks at most, but a few in any case: some locks are unfair. */
#define FORKS 1500
#define A_FEW 10

extern char **environ;
static volatile int stop;
static void *(*job)(void *);
static pthread_mutex_t ours = PTHREAD_MUTEX_INITIALIZER;

/* A logging stream: each write goes to a list of records. */
static ssize_t record(void *cookie, const char *bytes, size_t length) {
    static char *records[64];
    static int next;
    next = (next + 1) % 64;
    free(records[next]);
    memcpy(records[next] = malloc(length + 40000), bytes, length);
    return length;
}

static void *flush_to_a_function(void *unused) {
    FILE *file = fopencookie(NULL, "w", (cookie_io_functions_t){.write = record});
    while (!stop) fputs("a line of a log\n", file), fflush(NULL);
    return NULL;
}

static void *flush_to_memory(void *unused) {
    while (!stop) {
        char *text = NULL;
        size_t length;
        FILE *file = open_memstream(&text, &length);
        for (int i = 0; i < 200; i++) fprintf(file, "line %d of a text that grows %0200d\n", i, i), fflush(NULL);
        fclose(file);
        free(text);
    }
    return NULL;
}

static void *read_lines(void *unused) {
    while (!stop) {
        FILE *file = tmpfile();
        CHECK(file);
        for (int i = 0; i < 20; i++) fprintf(file, "%-*d\n", 20000, i);
        rewind(file);
        char *line = NULL;
        size_t size = 0;
        while (getline(&line, &size, file) > 0) free(line), line = NULL, size = 0;
        free(line);
        fclose(file);
        fflush(NULL);
    }
    return NULL;
}

/* Several at once: each closes the others' streams in its child. */
static void *pipes(void *unused) {
    while (!stop) {
        FILE *stream[10];
        for (int i = 0; i < 10; i++) CHECK((stream[i] = popen("true", "r")) != NULL);
        for (int i = 0; i < 10; i++) pclose(stream[i]);
        char *argv[] = {"true", NULL};
        pid_t child;
        CHECK(posix_spawnp(&child, "true", NULL, NULL, argv, environ) == 0);
        CHECK(waitpid(child, NULL, 0) == child);
        CHECK(system("true") == 0);
    }
    return NULL;
}

static void *names(void *unused) {
    while (!stop) {
        getpwnam("root");
        struct addrinfo *found = NULL, want = {.ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
        if (getaddrinfo("localhost", "80", &want, &found) == 0) freeaddrinfo(found);
    }
    return NULL;
}

/* A library's lock, which its fork handlers take. */
static void take(void) { pthread_mutex_lock(&ours); }
static void give(void) { pthread_mutex_unlock(&ours); }
static void *allocate_under_ours(void *unused) {
    uint64_t seed = (uintptr_t)&seed;
    while (!stop) {
        take();
        void *block[50];
        for (int i = 0; i < 50; i++) block[i] = malloc(next_random(&seed) % 200000);
        for (int i = 0; i < 50; i++) free(block[i]);
        give();
        usleep(200); /* the lock is unfair: others get it meanwhile */
    }
    return NULL;
}

/* The earliest a program can register handlers. */
static void early(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "early") == 0) pthread_atfork(take, give, give);
}
__attribute__((section(".preinit_array"), used)) static void (*first)(int, char **) = early;

static void child(void) {
    alarm(PATIENCE);
    /* The list of streams is whole, and its lock is open: for this thread, and for another, twice. */
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        FILE *file = fopen("/dev/null", "w");
        CHECK(file && fprintf(file, "%d", i) == 1);
        CHECK(fflush(NULL) == 0 && fclose(file) == 0);
        CHECK(pthread_create(&thread, NULL, (void *(*)(void *))fflush, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    pthread_mutex_lock(&ours);
    free(malloc(300000));
    _exit(0);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    const char *which = argv[1];
    if (strcmp(which, "flush") == 0) job = flush_to_a_function;
    else if (strcmp(which, "memory") == 0) job = flush_to_memory;
    else if (strcmp(which, "lines") == 0) job = read_lines;
    else if (strcmp(which, "pipes") == 0) job = pipes;
    else if (strcmp(which, "names") == 0) job = names;
    else if (strcmp(which, "early") == 0) job = allocate_under_ours;
    else if (strcmp(which, "late") == 0) job = allocate_under_ours, CHECK(pthread_atfork(take, give, give) == 0);
    CHECK(job != NULL);
    double end = now() + atol(argv[2]) / 1e3;
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, job, NULL) == 0);
    for (int i = 0; i < A_FEW || (i < FORKS && now() < end); i++) {
        alarm(PATIENCE); /* what hangs ends with SIGALRM */
        pid_t pid = fork();
        if (pid == 0) {
            stop = 1;
            /* Not where libc's own name service may have been caught half-way: its children hang without Weir too. */
            if (i % 8 == 0 && job != names) child();
            _exit(0);
        }
        CHECK(ends_well(pid));
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    return 0;
}
