/* A seccomp filter that knows exactly the calls that are named (the list in docs/design/being-malloc.md) and those of this program itself.
   argv[1] says what happens:
     before   the filter comes before the background thread, and binds it; it kills for any other call
     tsync    the thread is there, and the filter is put on all threads
     refuse   the calls that are named fail, with EPERM or, at "nosys" and "again", with ENOSYS and EAGAIN: all others are allowed
     refuse-late  the thread is there, and the filter that is put on all threads refuses the calls with EACCES
     none     no filter
   argv[2] is how long to rest, ms; then the names. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define CALL(name) {#name, SYS_##name}
static const struct { const char *name; int number; } calls[] = {
    CALL(mmap), CALL(munmap), CALL(mremap), CALL(mprotect), CALL(madvise), CALL(process_madvise), CALL(mincore), CALL(brk),
    CALL(membarrier), CALL(futex), CALL(clock_gettime), CALL(getpid), CALL(gettid), CALL(tgkill), CALL(getrandom),
    CALL(sched_getaffinity), CALL(sched_setaffinity), CALL(sched_setscheduler), CALL(sched_getscheduler),
    CALL(sched_getparam), CALL(sched_setparam), CALL(sched_getattr), CALL(sched_setattr), CALL(getcpu), CALL(rseq),
    CALL(clone), CALL(clone3), CALL(exit), CALL(rt_sigprocmask), CALL(openat), CALL(read), CALL(pread64), CALL(write),
    CALL(close), CALL(stat), CALL(fstat), CALL(newfstatat), CALL(readlink), CALL(prctl), CALL(unshare), CALL(close_range),
    CALL(eventfd2), CALL(ppoll), CALL(prlimit64), CALL(capget), CALL(capset), CALL(getresuid), CALL(getresgid),
    CALL(getgroups), CALL(pidfd_open), CALL(pidfd_getfd), CALL(getdents64), CALL(socket), CALL(connect), CALL(kill),
    CALL(rt_sigqueueinfo), CALL(signalfd4), CALL(rt_sigtimedwait), CALL(set_tid_address), CALL(set_robust_list),
    CALL(sched_yield), CALL(mbind), CALL(kcmp), CALL(exit_group), CALL(getppid), CALL(statx), CALL(getpriority),
    CALL(setpriority), CALL(ioprio_get), CALL(ioprio_set), CALL(access), CALL(faccessat), CALL(faccessat2), CALL(lseek),
    CALL(fstatfs), CALL(fallocate), CALL(ftruncate), CALL(memfd_create), CALL(personality), CALL(uname),
    CALL(get_robust_list), {"futex_waitv", 449}, CALL(readlinkat), CALL(rt_sigaction), CALL(rt_sigreturn)};

/* What this program and libc call by themselves. The kernel calls restart_syscall in the place of a wait with a bound that was
   interrupted as the process was stopped and continued. */
static const int own[] = {SYS_restart_syscall, SYS_write, SYS_exit_group, SYS_clock_nanosleep, SYS_rt_sigreturn, SYS_getrusage, SYS_wait4,
    SYS_clone, SYS_clone3, SYS_set_robust_list, SYS_rt_sigprocmask, SYS_exit, SYS_rseq, SYS_mprotect, SYS_rt_sigaction};

static int number_of(const char *name) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, name) == 0) return calls[i].number;
    dprintf(2, "strict.c does not know %s\n", name);
    _exit(2);
}

static struct sock_filter lines[512], *line = lines;
static void answer(int number, unsigned with) {
    *line++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
    *line++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, with);
}

/* Returns 0 where no filter may be set. */
static int filter(char **names, unsigned named, unsigned other, unsigned flags) {
    *line++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    if (other != SECCOMP_RET_ALLOW)
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) answer(own[i], SECCOMP_RET_ALLOW);
    for (; *names; names++) answer(number_of(*names), named);
    *line++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, other);
    struct sock_fprog program = {line - lines, lines};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 0;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0;
}

static void rest(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time)) {}
}

enum { COUNT = 1000, STEP = 15 }; /* blocks of up to 15,000 bytes; a run for each call makes them a dozen times */
static void blocks(void) {
    unsigned char **block = malloc(COUNT * sizeof *block);
    CHECK(block);
    for (int i = 0; i < COUNT; i++) CHECK(block[i] = malloc(i * STEP)), fill(block[i], i * STEP, i);
    for (int i = 0; i < COUNT; i++) CHECK(holds(block[i], i * STEP, i)), free(block[i]);
    free(block);
}

static void work(void) {
    blocks();
    unsigned char *large = malloc(9 << 20);
    CHECK(large), fill(large, 9 << 20, 1);
    CHECK((large = realloc(large, 40 << 20)) && holds(large, 9 << 20, 1));
    CHECK((large = realloc(large, 6 << 20)) && holds(large, 6 << 20, 1)), free(large);
    CHECK(large = calloc(1, 30 << 20));
    for (int i = 0; i < 30 << 20; i += 4096) CHECK(large[i] == 0), large[i] = 1;
    free(large);
    malloc_trim(0);
}

static void *in_thread(void *argument) { return blocks(), rest(50), blocks(), argument; }

static void threads_and_forks(void) {
    pthread_t thread[3];
    int made = 0;
    while (made < 3 && pthread_create(&thread[made], NULL, in_thread, NULL) == 0) made++;
    for (int i = 0; i < made; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    pid_t child = fork();
    if (child == 0) work(), rest(400), blocks(), _exit(0);
    if (child > 0) CHECK(ends_well(child));
}

/* Milliseconds of processor time so far. */
static long used(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

int main(int count, char **argv) {
    alarm(LIFETIME);
    CHECK(count >= 3);
    const char *how = argv[1];
    free(malloc(100)); /* the first allocation makes calls of its own */
    int is_set = 1, resting = atoi(argv[2]);
    if (strcmp(how, "before") == 0)
        is_set = filter(argv + 3, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS, 0);
    else if (strcmp(how, "refuse") == 0)
        is_set = filter(argv + 3, SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ALLOW, 0);
    else if (strcmp(how, "nosys") == 0)
        is_set = filter(argv + 3, SECCOMP_RET_ERRNO | ENOSYS, SECCOMP_RET_ALLOW, 0);
    else if (strcmp(how, "again") == 0)
        is_set = filter(argv + 3, SECCOMP_RET_ERRNO | EAGAIN, SECCOMP_RET_ALLOW, 0);
    else if (strcmp(how, "tsync") == 0) {
        work(), rest(700);
        is_set = filter(argv + 3, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS, SECCOMP_FILTER_FLAG_TSYNC);
    }
    else if (strcmp(how, "refuse-late") == 0) {
        work(), rest(700);
        is_set = filter(argv + 3, SECCOMP_RET_ERRNO | EACCES, SECCOMP_RET_ALLOW, SECCOMP_FILTER_FLAG_TSYNC);
    }
    if (!is_set) skip_all("no filter may be set here");
    int rounds = strcmp(how, "refuse") && strcmp(how, "nosys") && strcmp(how, "again") ? 3 : 1;
    for (int round = 0; round < rounds; round++) work(), rest(150);
    threads_and_forks();
    work();
    long before = used();
    rest(resting);
    /* Whatever is refused, a thread that rests does not spin: it would use all of this time. A busy machine gives it less, so
       that one may not be found there; none is found where there is none. */
    CHECK(used() - before < resting / 2 + 100);
    work();
    return 0;
}
