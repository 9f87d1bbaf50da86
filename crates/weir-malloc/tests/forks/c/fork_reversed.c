/* fork waits, with the heap's locks, for a lock (handlers_first.c) whose holder allocates: both must go on. With argv[1] in a
   process some files of which are root's, as after setuid. */
#include "check.h"
#include <sys/prctl.h>

static volatile int stop;
static int (*is_forking)(void);
static void (*take_lock)(void), (*give_lock)(void);

/* Blocks of all kinds, so that some come from no bucket. */
static void allocate(void) {
    static const size_t sizes[] = {100, 5000, 40000, 300000, 8 << 20};
    for (int i = 0; i < 300; i++) {
        char *block = malloc(sizes[i % 5]);
        CHECK(block);
        block[0] = 1;
        free(block);
    }
    void *many[300];
    for (int i = 0; i < 300; i++) CHECK((many[i] = malloc(1000)) != NULL);
    for (int i = 0; i < 300; i++) free(many[i]);
}

static void *hold(void *unused) {
    while (!stop) {
        take_lock();
        /* Until fork waits for the lock, and then a little longer, so that it also waits with the heap's locks: as a rule. */
        for (int i = 0; i < 1000 && !stop && !is_forking(); i++) usleep(1000);
        usleep(20000);
        allocate();
        give_lock();
        usleep(1000);
    }
    return NULL;
}

/* A third one, to which the lock is nothing. */
static void *bystander(void *unused) {
    while (!stop) allocate();
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        CHECK(strcmp(argv[1], "undumpable") == 0);
        CHECK((getuid() != 0 || setuid(65534) == 0) && prctl(PR_SET_DUMPABLE, 0) == 0);
    }
    is_forking = (int (*)(void))dlsym(RTLD_DEFAULT, "is_forking");
    take_lock = (void (*)(void))dlsym(RTLD_DEFAULT, "take_lock");
    give_lock = (void (*)(void))dlsym(RTLD_DEFAULT, "give_lock");
    CHECK(is_forking && take_lock && give_lock);
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&thread[i], NULL, i == 0 ? hold : bystander, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        alarm(PATIENCE); /* what hangs ends with SIGALRM */
        pid_t pid = fork();
        if (pid == 0) {
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        CHECK(ends_well(pid));
        allocate();
    }
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
    /* A fork with nobody in the way is as it was. */
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(PATIENCE);
            allocate();
            _exit(0);
        }
        CHECK(ends_well(pid));
    }
    return 0;
}
