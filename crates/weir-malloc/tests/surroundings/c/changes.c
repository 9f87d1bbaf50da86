/* A program that gives advice on memory, and gets another root, other namespaces and another user. It needs no library but
   libc's own: glibc before 2.34 has `dlsym` in another one, which check.h would ask for. */
#define _GNU_SOURCE 1
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_failed(int line, const char *condition) {
    dprintf(2, "changes.c:%d: CHECK(%s) failed, errno %d\n", line, condition, errno);
    _exit(1);
}
#define CHECK(condition) ((condition) ? (void)0 : check_failed(__LINE__, #condition))
/* By the kernel, for what the call asks. A container's filter refuses some in its own way. */
#define REFUSED(call, why) ((call) == -1 && (errno == (why) || errno == EPERM))

static void skip_part(const char *why) { dprintf(1, "SKIPPED: %s\n", why); }

enum { NOBODY = 65534, SIZE = 1 << 20, BLOCKS = 32, CAPABILITIES_3 = 0x20080522 };

int capset(void *, const void *);
int capget(void *, void *);
int pivot_root(const char *, const char *);

/* How many threads this process has, and -1 where that is not said. */
static int tasks(void) {
    DIR *folder = opendir("/proc/self/task");
    int count = -2;
    if (!folder) return -1;
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

/* Makes memory idle until the heap has a thread that looks after it. Other heaps have none. */
static void start(void) {
    for (int round = 0; round < 25 && tasks() == 1; round++) {
        static char *block[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) CHECK((block[i] = malloc(SIZE))), memset(block[i], i, SIZE);
        for (int i = 0; i < BLOCKS; i++) free(block[i]);
        usleep(20000);
    }
}

static void advise(void) {
    char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, 1, SIZE);
    CHECK(madvise(memory, SIZE, MADV_DONTNEED) == 0 && memory[0] == 0 && memory[SIZE - 1] == 0);
    CHECK(madvise(memory + 1, SIZE, MADV_DONTNEED) == -1 && errno == EINVAL);
    CHECK(munmap(memory, SIZE) == 0);
}

/* What any user may, and what nobody may. */
static void any_user(void) {
    int head[2] = {CAPABILITIES_3, 0}, sets[6];
    CHECK(capget(head, sets) == 0 && capset(head, sets) == 0);
    head[0] = 1;
    CHECK(capset(head, sets) == -1 && errno == EINVAL);
    CHECK(setgid(getgid()) == 0 && setegid(getgid()) == 0 && setregid(-1, getgid()) == 0);
    CHECK(setresgid(-1, getgid(), -1) == 0);
    CHECK(setuid(getuid()) == 0 && seteuid(getuid()) == 0 && setreuid(-1, getuid()) == 0);
    CHECK(setresuid(-1, getuid(), -1) == 0);
    CHECK(REFUSED(chroot("/no such folder"), ENOENT));
    CHECK(REFUSED(pivot_root("/no such folder", "/"), ENOENT));
    CHECK(REFUSED(setns(-1, 0), EBADF));
    CHECK(REFUSED(unshare(-1), EINVAL));
    CHECK(unshare(CLONE_FS) == 0 || errno == EPERM);
}

/* A user namespace, which the kernel refuses to a process of several threads: the heap's thread makes room. */
static void user_namespace(void) {
    pid_t child = fork();
    int status, is_made;
    if (child == 0) _exit(syscall(SYS_unshare, CLONE_NEWUSER) != 0);
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) {
        skip_part("no user namespace may be made here");
        return;
    }
    start();
    /* The thread may be releasing memory: it is waited for for a second. */
    for (int round = 0; !(is_made = unshare(CLONE_NEWUSER) == 0) && errno == EINVAL && round < 60; round++) {}
    CHECK(is_made);
}

static void mount_namespace(void) {
    char before[64] = "", after[64] = "";
    int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (own < 0 || (unshare(CLONE_NEWNS) != 0 && errno == EPERM)) {
        skip_part("no mount namespace may be made here");
        return;
    }
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", own);
    CHECK(readlink(link, before, sizeof before - 1) > 0);
    CHECK(readlink("/proc/self/ns/mnt", after, sizeof after - 1) > 0 && strcmp(before, after) != 0);
    CHECK(setns(own, CLONE_NEWNS) == 0);
    memset(after, 0, sizeof after);
    CHECK(readlink("/proc/self/ns/mnt", after, sizeof after - 1) > 0 && strcmp(before, after) == 0);
}

/* What a file of is open cannot be unmounted: the heap's thread has files of /proc. */
static void unmounted(void) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) != 0) {
        skip_part("no mount namespace may be made here");
        return;
    }
    for (int round = 0; round < 2; round++) {
        if (mount("proc", "/proc", "proc", 0, 0) != 0) {
            skip_part("no /proc may be mounted here");
            return;
        }
        start();
        usleep(200000); /* time to open its files; where it is slower it has none */
        CHECK((round == 0 ? umount("/proc") : umount2("/proc", 0)) == 0);
    }
    CHECK(REFUSED(umount("/no such folder"), ENOENT));
    CHECK(REFUSED(umount2("/no such folder", MNT_DETACH), ENOENT));
}

static void another_root(void) {
    char place[] = "/tmp/weir-changes-XXXXXX", file[64];
    CHECK(mkdtemp(place));
    snprintf(file, sizeof file, "%s/inside", place);
    close(open(file, O_WRONLY | O_CREAT, 0600));
    pid_t child = fork();
    if (child == 0) {
        start();
        CHECK(chroot(place) == 0 && chdir("/") == 0);
        CHECK(access("/inside", F_OK) == 0 && access("/proc", F_OK) == -1);
        free(malloc(SIZE));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    unlink(file), rmdir(place);
    CHECK(status == 0);
}

static pthread_barrier_t turn;

/* A thread of libc's is of the new user, as all of them are. */
static void *other(void *unused) {
    (void)unused;
    pthread_barrier_wait(&turn); /* it is there */
    pthread_barrier_wait(&turn); /* the user has changed */
    CHECK(syscall(SYS_getuid) == NOBODY && syscall(SYS_getgid) == NOBODY);
    CHECK(setuid(0) == -1 && errno == EPERM);
    return NULL;
}

static void another_user(void) {
    pthread_t thread;
    uid_t id[3];
    start();
    CHECK(pthread_barrier_init(&turn, NULL, 2) == 0 && pthread_create(&thread, NULL, other, NULL) == 0);
    pthread_barrier_wait(&turn);
    CHECK(setgroups(0, NULL) == 0 && getgroups(0, NULL) == 0);
    CHECK(seteuid(NOBODY) == 0 && geteuid() == NOBODY && seteuid(0) == 0 && geteuid() == 0);
    CHECK(setgid(NOBODY) == 0 && getresgid(&id[0], &id[1], &id[2]) == 0);
    CHECK(id[0] == NOBODY && id[1] == NOBODY && id[2] == NOBODY);
    CHECK(setuid(NOBODY) == 0 && getresuid(&id[0], &id[1], &id[2]) == 0);
    CHECK(id[0] == NOBODY && id[1] == NOBODY && id[2] == NOBODY);
    CHECK(setuid(0) == -1 && errno == EPERM);
    CHECK(setgid(0) == -1 && errno == EPERM);
    CHECK(chroot("/") == -1 && errno == EPERM);
    pthread_barrier_wait(&turn);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Each in a process of its own. */
static void alone(void (*part)(void)) {
    pid_t child = fork();
    int status;
    CHECK(child >= 0);
    if (child == 0) part(), _exit(0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    alarm(300);
    alone(advise);
    alone(any_user);
    alone(user_namespace);
    if (getuid() == 0) {
        alone(mount_namespace);
        alone(unmounted);
        alone(another_root);
        alone(another_user);
    } else {
        skip_part("only root may have another root or become another user");
    }
    return 0;
}
