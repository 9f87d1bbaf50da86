/* fork, vfork and posix_spawn out of a process whose threads allocate all the time. argv[1]: forks. */
#include "check.h"
#include <signal.h>
#include <spawn.h>

extern char **environ;
static volatile int stop;
static int in_prepare, in_parent, in_child;

/* Handlers of a library that was loaded before or after Weir: they may allocate. */
static void prepare(void) { in_prepare++, free(malloc(300)); }
static void parent(void) { in_parent++, free(malloc(3000)); }
static void child(void) { in_child++, free(malloc(30000)); }
__attribute__((constructor(101))) static void early(void) { CHECK(pthread_atfork(prepare, parent, child) == 0); }

static void *churn(void *argument) {
    uint64_t random = (uintptr_t)argument + 1;
    enum { COUNT = 64 };
    unsigned char *block[COUNT] = {0};
    size_t size[COUNT] = {0};
    while (!stop) {
        int i = next_random(&random) % COUNT;
        if (block[i]) CHECK(holds(block[i], size[i], i));
        free(block[i]);
        size[i] = next_random(&random) % (next_random(&random) % 50 ? 3000 : 300000);
        CHECK(block[i] = malloc(size[i]));
        fill(block[i], size[i], i);
    }
    for (int i = 0; i < COUNT; i++) free(block[i]);
    return NULL;
}

static void *in_a_thread(void *argument) { return realloc(malloc(100), 100000); }

/* What a child does: everything, with threads of its own and a grandchild. */
static void live(int generation) {
    enum { COUNT = 2000 };
    void *block[COUNT];
    for (int i = 0; i < COUNT; i++) CHECK(block[i] = malloc(i * 3)), fill(block[i], i * 3, i);
    for (int i = 0; i < COUNT; i++) CHECK(holds(block[i], i * 3, i)), free(block[i]);
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, in_a_thread, NULL) == 0 && pthread_join(thread, &result) == 0);
    free(result);
    malloc_trim(0);
    if (generation == 0) return;
    pid_t pid = fork();
    if (pid == 0) live(generation - 1), exit(0);
    CHECK(ends_well(pid));
}

static void forks(int count) {
    unsigned char *kept = malloc(100000), *small = malloc(100);
    fill(kept, 100000, 1), fill(small, 100, 2);
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(PATIENCE); /* a child that deadlocks fails, rather than hangs */
            CHECK(holds(kept, 100000, 1) && holds(small, 100, 2));
            free(kept), free(small); /* the parent's blocks are the child's */
            if (i % 10 == 0) live(1);
            else free(malloc(i * 1000));
            if (i % 2) exit(0);
            _exit(0);
        }
        CHECK(ends_well(pid));
        CHECK(holds(kept, 100000, 1) && holds(small, 100, 2));
    }
    CHECK(in_prepare == count && in_parent == count && in_child == 0);
    free(kept), free(small);
}

static void spawns(void) {
    for (int i = 0; i < 30; i++) {
        int status;
        pid_t pid = vfork();
        if (pid == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(9);
        }
        CHECK(ends_well(pid));
        char *arguments[] = {"sh", "-c", "exit 3", NULL};
        CHECK(posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) == 0);
        CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3);
    }
    FILE *pipe = popen("echo popen", "r");
    char line[16];
    CHECK(pipe && fgets(line, 16, pipe) && strcmp(line, "popen\n") == 0 && pclose(pipe) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    pthread_t threads[4];
    alarm(LIFETIME);
    for (long i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, churn, (void *)i) == 0);
    forks(atoi(argv[1]));
    spawns();
    stop = 1;
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    /* and once more from a single thread */
    pid_t pid = fork();
    if (pid == 0) live(2), exit(0);
    CHECK(ends_well(pid));
    return 0;
}
