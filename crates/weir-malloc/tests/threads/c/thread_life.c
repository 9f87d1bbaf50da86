/* When the background thread ends and starts again, and that it is not there when a program becomes something else.
   argv[1] says which. */
#include "check.h"
#include "tasks.h"
#include "weir.h"
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { BLOCKS = 64, SIZE = 1 << 20 };
static char *block[BLOCKS];

static void burst(void) {
    for (int i = 0; i < BLOCKS; i++) CHECK(block[i] = malloc(SIZE)), memset(block[i], i, SIZE);
    for (int i = 0; i < BLOCKS; i++) free(block[i]);
}

static int count(void) {
    int task[MOST_TASKS];
    return threads(task);
}

/* Frees until the background thread runs. Its listener may be refused: it is waited for a little, and what follows may come
   before it or after. */
static void start(void) {
    WAIT_FOR((burst(), usleep(20000), count() >= 1));
    for (int round = 0; round < 10 && count() < 2; round++) usleep(10000);
}

/* The thread is made within the call that finds the heap grown to `background_start`. */
static void at_size(void) {
    CHECK(count() == 0);
    set("background_start", 1ull << 50);
    burst();
    CHECK(count() == 0);
    set("background_start", 4 << 20);
    start();
}

/* Whether a thread of Weir's has no capability but CAP_SYS_RESOURCE and CAP_IPC_LOCK, or is not there any more. */
static int gave_up_rights(int task) {
    char line[100];
    status(task, "CapPrm:", line, sizeof line);
    return line[0] == 0 || (strtoul(line + 7, NULL, 16) & ~(1ul << 24 | 1ul << 14)) == 0;
}

static void need_root(void) {
    if (getuid() != 0) skip_all("only root may");
}

/* Whether a path that leads through a thread's links shows the file outside of the jail. */
static int leads_out(const char *through, const char *file) {
    char path[800];
    struct stat stat_buf;
    snprintf(path, sizeof path, "%s/%s", through, file);
    return stat(path, &stat_buf) == 0;
}

/* No link of a thread of this process leads to `file`, which is outside. */
static int is_closed(const char *file) {
    int closed = 1;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks));) {
        char path[300], link[600];
        if (entry->d_name[0] == '.') continue;
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "/proc/self/task/%s/%s", entry->d_name, i ? "root" : "cwd");
            closed &= !leads_out(path, file);
        }
        snprintf(path, sizeof path, "/proc/self/task/%s/fd", entry->d_name);
        DIR *files = opendir(path);
        for (struct dirent *number; files && (number = readdir(files));) {
            if (number->d_name[0] == '.') continue;
            char up[700];
            snprintf(link, sizeof link, "%s/%s", path, number->d_name);
            snprintf(up, sizeof up, "%s/../../../../../../../..", link);
            closed &= !leads_out(link, file) && !leads_out(up, file);
        }
        if (files) closedir(files);
    }
    closedir(tasks);
    return closed;
}

/* What holds as soon as a change that was begun at `since` returns. Weir waits for its thread's end for 1 s: where the
   machine takes the CPUs away for longer than that, it may hold later. */
#define CHECK_CHANGED(since, condition)                                                                                \
    do {                                                                                                               \
        if (now() - (since) >= 1) WAIT_FOR(condition);                                                                 \
        CHECK(condition);                                                                                              \
    } while (0)

/* A jail by `how`: "chroot", "unshare" before it, "pivot"; "raw" makes the system call past libc. */
static void jail(const char *how) {
    need_root();
    char outside[] = "/tmp/weir-outside-XXXXXX", place[] = "/tmp/weir-jail-XXXXXX";
    CHECK(mkdtemp(outside) && mkdtemp(place));
    char proc[100], old[100];
    snprintf(proc, sizeof proc, "%s/proc", place), snprintf(old, sizeof old, "%s/old", place);
    pid_t child = fork(); /* so that what is mounted goes with its namespace, and the folders can be removed */
    if (child == 0) {
        if (unshare(CLONE_NEWNS) != 0) skip_all("no mount namespace may be made here");
        CHECK(mount("none", "/", 0, MS_REC | MS_PRIVATE, 0) == 0 && mount("tmpfs", place, "tmpfs", 0, 0) == 0);
        CHECK(mkdir(proc, 0755) == 0 && mkdir(old, 0755) == 0);
        if (mount("proc", proc, "proc", 0, 0) != 0) skip_all("no /proc may be mounted here");
        start();
        double since = now();
        if (strcmp(how, "pivot") == 0) {
            CHECK(unshare(CLONE_NEWNS) == 0 && chdir(place) == 0 && syscall(SYS_pivot_root, ".", "old") == 0);
            CHECK(chroot(".") == 0 && chdir("/") == 0 && umount2("/old", MNT_DETACH) == 0);
        } else if (strcmp(how, "raw") == 0) {
            CHECK(syscall(SYS_unshare, CLONE_FS) == 0);
            CHECK(syscall(SYS_chroot, place) == 0 && chdir("/") == 0);
            /* Nothing tells of it: the thread sees it when it is woken next. */
            WAIT_FOR((burst(), usleep(20000), is_closed(outside)));
        } else {
            if (strcmp(how, "unshare") == 0) CHECK(unshare(CLONE_FS) == 0);
            CHECK(chroot(place) == 0 && chdir("/") == 0);
        }
        CHECK_CHANGED(since, is_closed(outside));
        CHECK(setgroups(0, 0) == 0 && setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
        start();
        CHECK(is_closed(outside));
        _exit(0);
    }
    int result;
    CHECK(waitpid(child, &result, 0) == child);
    rmdir(outside), rmdir(place);
    CHECK(WIFEXITED(result));
    if (WEXITSTATUS(result) == 77) exit(77);
    CHECK(WEXITSTATUS(result) == 0);
}

/* What the kernel refuses to a process of several threads works, and again and again. */
static void namespaces(void) {
    start();
    /* Refused while Weir's thread is there, which it waits for 1 s to end. */
    int is_made;
    double since;
    do since = now(), is_made = unshare(CLONE_NEWUSER) == 0;
    while (!is_made && errno == EINVAL && now() - since >= 1);
    CHECK(is_made || errno != EINVAL);
    if (!is_made) skip_all("no user namespace may be made here");
    CHECK_CHANGED(since, count() <= 2); /* another one, and its listener where that was quick */
    start();
    long before = 0;
    for (int i = 0; i < 1000; i++) {
        since = now();
        CHECK(unshare(CLONE_FS) == 0);
        CHECK_CHANGED(since, count() <= 2);
        if (i % 50 == 0) start();
        if (i == 100 || i == 999) {
            long size, unused;
            FILE *file = fopen("/proc/self/statm", "r");
            CHECK(fscanf(file, "%ld %ld", &size, &unused) == 2);
            fclose(file);
            /* The heap may have taken two steps of 8 MiB of address space. The places of all 899 threads are 49 MiB. */
            if (i == 999) CHECK(size - before < (16 << 20) / 4096 + 256);
            before = size;
        }
    }
}

static void works(void);

/* Whether a thread of `before` is not there any more; others may have come. */
static int one_is_gone(const int *before, int found) {
    int after[MOST_TASKS], left = threads(after), j;
    for (int i = 0; i < found; i++) {
        for (j = 0; j < left && after[j] != before[i]; j++) {}
        if (j == left) return 1;
    }
    return 0;
}

/* A PID namespace is for children alone, and from then on no thread can be started: that of Weir's stays. */
static void pid_namespace(void) {
    need_root();
    start();
    int before[MOST_TASKS], found = threads(before), own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    CHECK(own >= 0);
    if (unshare(CLONE_NEWPID) != 0) skip_all("no PID namespace may be made here");
    CHECK(!one_is_gone(before, found));
    CHECK(setns(own, CLONE_NEWPID) == 0);
    CHECK(!one_is_gone(before, found));
    CHECK(unshare(CLONE_NEWPID) == 0);
    CHECK(unshare(CLONE_NEWPID) == -1 && errno == EINVAL); /* once for the same children */
    works();
    CHECK(!one_is_gone(before, found));
}

/* A thread other than the main one takes a working directory, mounts and a root of its own, and frees what the main one made.
   Weir's thread is the main one's as before, and is never away. */
static char *small[60000];
enum { SMALL = sizeof small / sizeof *small };
static void *live_apart(void *place) {
    if (unshare(CLONE_FS) != 0) return "refused";
    for (int round = 0; round < 2; round++) CHECK(unshare(CLONE_FS) == 0);
    if (getuid() == 0) {
        CHECK(unshare(CLONE_NEWNS) == 0 || errno == EPERM);
        CHECK(unshare(CLONE_NEWUTS) == 0 || errno == EPERM);
        CHECK(chroot(place) == 0 || errno == EPERM);
    }
    CHECK(unshare(CLONE_NEWUSER) == -1); /* refused to a process of several threads */
    for (int i = 0; i < SMALL; i++) free(small[i]);
    return NULL;
}
static void unshared_worker(void) {
    start();
    int before[MOST_TASKS], found = threads(before);
    for (int i = 0; i < SMALL; i++) CHECK(small[i] = malloc(1000)), memset(small[i], i, 1000);
    char place[] = "/tmp/weir-jail-XXXXXX";
    CHECK(mkdtemp(place));
    pthread_t thread;
    void *refused;
    CHECK(pthread_create(&thread, NULL, live_apart, place) == 0 && pthread_join(thread, &refused) == 0);
    CHECK(rmdir(place) == 0);
    if (refused) skip_all("unshare is refused");
    CHECK(!one_is_gone(before, found));
    /* The program rests: no free of its own is a help. */
    WAIT_FOR((usleep(10000), resident_bytes() <= 24 << 20));
}

/* Sends out-of-band data, which the kernel tells of by SIGURG, to a process that asks for the signal later. */
static void urgent(void) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGURG), sigprocmask(SIG_BLOCK, &set, NULL);
    start();
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    CHECK(bind(server, (void *)&address, size) == 0 && listen(server, 1) == 0);
    CHECK(getsockname(server, (void *)&address, &size) == 0 && connect(client, (void *)&address, size) == 0);
    int peer = accept(server, NULL, NULL);
    CHECK(peer >= 0 && fcntl(peer, F_SETOWN, getpid()) == 0);
    struct timespec patience = {PATIENCE, 0};
    siginfo_t info;
    for (int i = 0; i < 20; i++) {
        CHECK(send(client, "x", 1, MSG_OOB) == 1);
        usleep(10000); /* time for a thief; one that comes later finds nothing */
        CHECK(sigtimedwait(&set, &info, &patience) == SIGURG && info.si_code == SI_KERNEL);
        char byte;
        recv(peer, &byte, 1, MSG_OOB);
    }
    pid_t child = fork();
    if (child == 0) kill(getppid(), SIGURG), _exit(0);
    CHECK(waitpid(child, NULL, 0) == child);
    usleep(10000); /* the same */
    CHECK(sigtimedwait(&set, &info, &patience) == SIGURG && info.si_code == SI_USER && info.si_pid == child);
}

/* How often a thread was switched to after it had slept; 0 if it is gone. */
static long switches(int task) {
    char line[100];
    status(task, "voluntary_ctxt_switches:", line, sizeof line);
    return atol(line + strcspn(line, "\t"));
}

static volatile int idler;
static void *wait_for_nothing(void *unused) {
    for (idler = (int)syscall(SYS_gettid);;) pause();
}

/* How long processes of this machine have waited for memory, us; 0 where the kernel does not say it. */
static unsigned long long stalls(void) {
    char line[200];
    text_of("/proc/pressure/memory", line, sizeof line);
    char *total = strstr(line, "total=");
    return total ? strtoull(total + 6, NULL, 10) : 0;
}

/* Looks of 5 s each: so many one after another without a stall, in each of which a thread woke, are a fault; after so many in all the
   machine is no place for this test. */
enum { LOOKS = PATIENCE / 10, ALL_LOOKS = 90 };

/* At rest there is no wake-up for 5 s, whoever the program is, and whatever signal it leaves pending: Weir's threads are
   switched to no more often than one that waits for nothing, which only who stops and continues the process wakes. It takes them
   seconds to come to rest, so the first looks may see them awake. Weir's also wake where others wait for memory, as they are to:
   such a look says nothing. */
static void rest(int is_root, int is_pending) {
    sigset_t all;
    sigfillset(&all), sigprocmask(SIG_BLOCK, &all, NULL);
    if (is_root ? getuid() != 0 : getuid() == 0 && setuid(65534) != 0) skip_all("this user may not be another");
    char *kept = malloc(32 << 20);
    memset(kept, 1, 32 << 20);
    start();
    if (is_pending) kill(getpid(), SIGURG);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_nothing, NULL) == 0);
    WAIT_FOR(idler);
    int is_quiet = 0;
    for (int looks = 0, all = 0; !is_quiet; looks++) {
        CHECK(looks < LOOKS);
        if (++all > ALL_LOOKS) skip_all("others are short of memory all the time");
        unsigned long long stalled = stalls();
        int task[MOST_TASKS], found = threads(task);
        long before[MOST_TASKS], idle = switches(idler);
        for (int i = 0; i < found; i++) before[i] = switches(task[i]);
        sleep(5);
        is_quiet = found > 0;
        for (int i = 0; i < found; i++) {
            long after = switches(task[i]);
            is_quiet &= before[i] > 0 && after >= before[i] && after - before[i] <= switches(idler) - idle;
        }
        if (stalls() != stalled) looks = -1;
    }
    free(kept);
}

/* The main thread ends by the bare system call, and so does the last thread of the program. */
static void *end_late(void *argument) {
    usleep(200000); /* so that the main thread ends first, as a rule: both orders must go well */
    return (void *)syscall(SYS_exit, 5);
}
static void last_thread(int is_main_last) {
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        start();
        if (!is_main_last) CHECK(pthread_create(&thread, NULL, end_late, NULL) == 0);
        syscall(SYS_exit, 3);
    }
    int result;
    CHECK(ends(child, &result) && WIFEXITED(result));
    if (is_main_last) CHECK(WEXITSTATUS(result) == 3);
}

/* The same in a PID namespace of its own, of which /proc knows nothing: there it lists the numbers of the one above. */
static int listed(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}
static void last_thread_below(int is_main_last) {
    need_root();
    if (unshare(CLONE_NEWPID) != 0) skip_all("no PID namespace may be made here");
    pid_t child = fork();
    if (child == 0) {
        CHECK(getpid() == 1);
        WAIT_FOR((burst(), usleep(20000), listed() >= 2));
        pthread_t thread;
        if (!is_main_last) CHECK(pthread_create(&thread, NULL, end_late, NULL) == 0);
        syscall(SYS_exit, 3);
    }
    int result;
    CHECK(ends(child, &result) && WIFEXITED(result));
    if (is_main_last) CHECK(WEXITSTATUS(result) == 3);
}

/* The same as Weir's threads are just beginning: at one moment or another of their first milliseconds. */
static void last_at_start(void) {
    for (int round = 0; round < 24; round++) {
        pid_t child = fork();
        if (child == 0) {
            WAIT_FOR((burst(), count() >= 1));
            usleep(round * 250);
            syscall(SYS_exit, 3);
        }
        int result;
        CHECK(ends(child, &result) && WIFEXITED(result) && WEXITSTATUS(result) == 3);
    }
}

/* The same with threads for callbacks, which end as the background thread does: the status is that of the thread that ends last. */
static size_t nothing(void *data) { return 0; }
static size_t free_nothing(size_t bytes, int reason, void *data) { return 0; }
NAMED(shrinker_register)

static void last_with_callbacks(void) {
    for (int round = 0; round < 24; round++) {
        pid_t child = fork();
        if (child == 0) {
            struct weir_shrinker shrinker = {.name = "last", .count = nothing, .scan = free_nothing};
            for (shrinker.thread = WEIR_THREAD_SHARED; shrinker.thread <= WEIR_THREAD_OWN; shrinker.thread++)
                CHECK(p_shrinker_register(&shrinker, sizeof shrinker));
            start();
            syscall(SYS_exit, 3);
        }
        int result;
        CHECK(ends(child, &result) && WIFEXITED(result) && WEXITSTATUS(result) == 3);
    }
}

/* A program of one thread is killed by a filter that kills threads: the process ends by that signal, whatever the program has set
   for it. In strict mode the kernel has no other way. */
static void killed(int is_strict) {
    pid_t child = fork();
    if (child == 0) {
        start();
        struct rlimit no_core = {0, 0};
        CHECK(setrlimit(RLIMIT_CORE, &no_core) == 0 && signal(SIGSYS, SIG_IGN) != SIG_ERR);
        struct sock_filter lines[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof lines / sizeof *lines, lines};
        if (is_strict ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)
                      : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
            skip_all("no filter may be set here");
        syscall(SYS_getppid);
        syscall(SYS_exit, 3);
    }
    int result;
    CHECK(ends(child, &result));
    if (WIFEXITED(result) && WEXITSTATUS(result) == 77) exit(77);
    CHECK(WIFSIGNALED(result) && WTERMSIG(result) == (is_strict ? SIGKILL : SIGSYS));
}

/* The same where no file can be opened any more, or in a jail without /proc. Weir's thread has the status from a file that it
   opened before, which in a jail there is not. */
static void last_without_files(const char *how) {
    int is_jail = strncmp(how, "jail", 4) == 0, is_strict = strcmp(how, "strict") == 0;
    char place[] = "/tmp/weir-jail-XXXXXX";
    if (!dlsym(RTLD_DEFAULT, "__libc_single_threaded")) skip_all("this libc does not say whether there is one thread");
    if (is_jail) need_root(), CHECK(mkdtemp(place) && chmod(place, 0755) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        start();
        CHECK(!is_jail || (chroot(place) == 0 && chdir("/") == 0));
        CHECK(setrlimit(RLIMIT_CORE, &none) == 0 && (getuid() != 0 || setuid(65534) == 0));
        if (!is_jail) start();
        /* The thread has opened what it needs when its listener is there, which may be refused; or it has yet to begin. */
        if (!is_jail) for (int round = 0; round < 1000 && count() < 2; round++) usleep(10000);
        if (strcmp(how, "jail-at-once") != 0) usleep(500000);
        CHECK(is_jail || setrlimit(RLIMIT_NOFILE, &none) == 0);
        if (is_strict && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) skip_all("no filter may be set here");
        if (is_strict) syscall(SYS_getppid);
        syscall(SYS_exit, 3);
    }
    int result;
    CHECK(ends(child, &result));
    if (is_jail) CHECK(rmdir(place) == 0);
    if (WIFEXITED(result) && WEXITSTATUS(result) == 77) exit(77);
    if (is_strict) CHECK(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
    else CHECK(WIFEXITED(result) && (is_jail || WEXITSTATUS(result) == 3));
}

NAMED(pressure_latest)

/* The main thread has ended before others: what the kernel counts of it is 0. The process's own limit is heard all the same. */
static void *reach_limit(void *unused) {
    (void)unused;
    struct weir_pressure_event event;
    char line[100];
    WAIT_FOR((status(getpid(), "State:", line, sizeof line), strchr(line, 'Z')));
    for (int i = 0; i < BLOCKS; i++) CHECK(block[i] = malloc(SIZE)), memset(block[i], i, SIZE);
    CHECK(p_pressure_latest(&event, sizeof event) == 0);
    set("limit", 32 << 20);
    WAIT_FOR((CHECK(p_pressure_latest(&event, sizeof event) == 0), event.cause == 2));
    _exit(0);
}
static void without_main_thread(void) {
    pthread_t thread;
    start();
    CHECK(pthread_create(&thread, NULL, reach_limit, NULL) == 0);
    pthread_exit(NULL);
}

/* A class that takes what others leave is the background thread's too. */
static void class(int wanted) {
    struct sched_param none = {0};
    CHECK(sched_setscheduler(0, wanted, &none) == 0);
    start();
    int task[MOST_TASKS], found = threads(task);
    for (int i = 0; i < found; i++) CHECK(sched_getscheduler(task[i]) == wanted);
}

/* The thread still does its work: what a burst leaves goes back. */
static void works(void) {
    start();
    size_t before = resident_bytes();
    WAIT_FOR(resident_bytes() < before + (8 << 20));
    burst();
    WAIT_FOR(resident_bytes() <= 24 << 20);
}

static void groups(void) {
    need_root();
    gid_t group[2000];
    for (int i = 0; i < 2000; i++) group[i] = 100000 + i * 7;
    start();
    double since = now();
    CHECK(setgroups(2000, group) == 0);
    CHECK_CHANGED(since, count() <= 2);
    start();
    int task[MOST_TASKS], found = threads(task);
    char ours[16384], theirs[16384];
    status(getpid(), "Groups:", ours, sizeof ours);
    for (int i = 0; i < found; i++) {
        status(task[i], "Groups:", theirs, sizeof theirs);
        CHECK(theirs[0] == 0 || strcmp(ours, theirs) == 0); /* one of them may have ended */
    }
    usleep(1500000); /* it rests, as a rule */
    works();
    CHECK(count() >= 1);
}

/* A call is refused to this thread, and to those that it starts from now on. */
static void refuse(int call) {
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof lines / sizeof *lines, lines};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        skip_all("no filter may be set here");
}

/* Signals between threads are refused from now on. */
static void refused(void) {
    start();
    usleep(3000000); /* it rests, as a rule: it may be at work as well */
    refuse(SYS_tgkill);
    for (int round = 0; round < 3; round++) works(), usleep(1000000); /* between them it rests, as a rule */
}

/* A limit of threads refuses the listener, but not the thread before it. Later the limit is another. */
static void few_threads(void) {
    struct rlimit limit = {2, 64};
    need_root();
    /* Root is above the limit, and this user has no other process. */
    if (setuid(100000 + getpid()) != 0) skip_all("this user may not become another");
    CHECK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0 && setrlimit(RLIMIT_NPROC, &limit) == 0);
    WAIT_FOR((burst(), usleep(20000), count() >= 1));
    usleep(1000000);
    CHECK(count() == 1);
    limit.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NPROC, &limit) == 0);
    WAIT_FOR(count() == 2);
}

/* Mappings of the process. */
static int mappings(void) {
    static char text[1 << 16];
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), lines = 0;
    CHECK(fd >= 0);
    for (ssize_t n; (n = read(fd, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < n; i++) lines += text[i] == '\n';
    close(fd);
    return lines;
}

/* Restartable sequences are refused to threads that start from now on. One that ends leaves nothing all the same: each change of
   the group ends one, and starts another. */
static void refused_rseq(void) {
    enum { ENDS = 40 };
    start();
    refuse(SYS_rseq);
    CHECK(setgid(getgid()) == 0);
    start();
    int before = mappings();
    for (int i = 0; i < ENDS; i++) CHECK(setgid(getgid()) == 0);
    CHECK(mappings() < before + ENDS / 2);
}

/* A child of vfork that is the first to free so much does not start its parent's thread, nor one that ends with it. */
__attribute__((noinline)) static void in_child(void) { burst(); }
static void vforked(void) {
    pid_t child = vfork();
    if (child == 0) in_child(), _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    works();
    /* Nor does a child end it by becoming something else. */
    int before[MOST_TASKS], found = threads(before);
    CHECK(found >= 1);
    child = vfork();
    if (child == 0) _exit(setgid(getgid()) != 0 || unshare(CLONE_FS) != 0);
    int result;
    CHECK(child > 0 && waitpid(child, &result, 0) == child && result == 0);
    CHECK(!one_is_gone(before, found));
}

/* Whether all threads have the main thread's ids. */
static int all_alike(void) {
    int alike = 1;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks));)
        for (int j = 0; j < 2 && entry->d_name[0] != '.'; j++) {
            char ours[200], theirs[200];
            status(getpid(), j ? "Uid:" : "Gid:", ours, sizeof ours);
            status(atoi(entry->d_name), j ? "Uid:" : "Gid:", theirs, sizeof theirs);
            alike &= theirs[0] == 0 || strcmp(ours, theirs) == 0;
        }
    closedir(tasks);
    return alike;
}

/* A program that changes its user: in the moment that the call returns, no thread has the old one's rights. */
static void rights(int is_raw) {
    need_root();
    start();
    int task[MOST_TASKS], found = threads(task);
    /* It has the program's until it has opened what it listens to. */
    for (int i = 0; i < found; i++)
        WAIT_FOR(gave_up_rights(task[i]));
    if (is_raw) {
        usleep(1500000); /* it rests, as a rule, and nothing tells of this */
        CHECK(syscall(SYS_setresgid, 65534, 65534, 65534) == 0 && syscall(SYS_setresuid, 65534, 65534, 65534) == 0);
    } else {
        double since = now();
        CHECK(setresgid(65534, 65534, 65534) == 0);
        CHECK_CHANGED(since, all_alike());
        start();
        since = now();
        CHECK(setresuid(65534, 65534, 65534) == 0);
        CHECK_CHANGED(since, all_alike());
        start();
    }
    if (is_raw) WAIT_FOR((burst(), usleep(20000), all_alike()));
    CHECK(all_alike());
}

/* From a handler that may have interrupted the heap anywhere: no deadlock. The next signal comes 3 ms after a handler's
   end, so that the program goes on between two of them on a busy machine too. */
static timer_t timer;
static void next_alarm(void) {
    struct itimerspec once = {{0, 0}, {0, 3000000}};
    CHECK(timer_settime(timer, 0, &once, NULL) == 0);
}
static void on_alarm(int number) {
    (void)!setgid(getgid());
    next_alarm();
}
static void in_handler(void) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    start();
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    next_alarm();
    for (int round = 0; round < 40; round++) burst(), malloc_trim(0);
}

int main(int argc, char **argv) {
    alarm(LIFETIME);
    CHECK(argc == 2);
    const char *which = argv[1];
    if (!is_weir()) skip_all("it is of Weir's own");
    if (strncmp(which, "jail-", 5) == 0) jail(which + 5);
    else if (strcmp(which, "namespaces") == 0) namespaces();
    else if (strcmp(which, "urgent") == 0) urgent();
    else if (strncmp(which, "rest-", 5) == 0) rest(strstr(which, "root") != NULL, strstr(which, "pending") != NULL);
    else if (strcmp(which, "main-last") == 0) last_thread(1);
    else if (strcmp(which, "main-last-callbacks") == 0) last_with_callbacks();
    else if (strcmp(which, "other-last") == 0) last_thread(0);
    else if (strcmp(which, "main-last-below") == 0) last_thread_below(1);
    else if (strcmp(which, "other-last-below") == 0) last_thread_below(0);
    else if (strcmp(which, "last-at-start") == 0) last_at_start();
    else if (strcmp(which, "killed") == 0) killed(0);
    else if (strcmp(which, "killed-strict") == 0) killed(1);
    else if (strncmp(which, "last-without-files-", 19) == 0) last_without_files(which + 19);
    else if (strcmp(which, "limit-alone") == 0) without_main_thread();
    else if (strcmp(which, "pid-namespace") == 0) pid_namespace();
    else if (strcmp(which, "unshared-worker") == 0) unshared_worker();
    else if (strcmp(which, "batch") == 0) class(SCHED_BATCH);
    else if (strcmp(which, "idle") == 0) class(SCHED_IDLE);
    else if (strcmp(which, "groups") == 0) groups();
    else if (strcmp(which, "refused") == 0) refused();
    else if (strcmp(which, "few-threads") == 0) few_threads();
    else if (strcmp(which, "refused-rseq") == 0) refused_rseq();
    else if (strcmp(which, "vfork") == 0) vforked();
    else if (strcmp(which, "rights") == 0) rights(0);
    else if (strcmp(which, "rights-raw") == 0) rights(1);
    else if (strcmp(which, "handler") == 0) in_handler();
    else if (strcmp(which, "start") == 0) at_size();
    else CHECK(!"known");
    return 0;
}
