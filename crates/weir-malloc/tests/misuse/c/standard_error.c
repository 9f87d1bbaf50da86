/* Where Weir's lines go, and where not: number 2 may be a file of data by then. argv[1] says which. The program's own checks say
   what they find to the standard error of the start, which is kept at another number. */
#include "check.h"
#include "tasks.h"
#include "weir.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

static int kept = -1;
#undef CHECK
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0                                                                                             \
                 : (dprintf(kept < 0 ? 2 : kept, "%s:%d: %s, errno %d\n", __FILE__, __LINE__, #condition, errno), _exit(1)))

static char name[] = "/tmp/weir-data-XXXXXX";

NAMED(pressure_latest)

/* Makes a file whose number is 2. */
static void take_number(int flags) {
    int file = mkstemp(name);
    CHECK(file >= 0 && write(file, "HEADER\n", 7) == 7 && close(file) == 0);
    kept = fcntl(2, F_DUPFD_CLOEXEC, 100);
    CHECK(kept >= 100 && close(2) == 0);
    CHECK(open(name, flags) == 2);
}

/* Whether the file has a line of Weir's behind what was there. */
static int has_line(void) {
    char text[512];
    int file = open(name, O_RDONLY);
    ssize_t got = read(file, text, sizeof text - 1);
    CHECK(got >= 7 && close(file) == 0 && memcmp(text, "HEADER\n", 7) == 0);
    text[got] = 0;
    return strstr(text, "weir: ") != NULL;
}

/* Of the program's own thread: a line, after which the program goes on (WEIR_ABORT_ON_MISUSE=0). */
static void free_twice(void) {
    void *block = malloc(100);
    free(block), free(block);
}

/* Of Weir's thread: locked memory cannot be released, which is said once. The process is above its limit, so that the thread tries
   at each of its looks, before it tells of the pressure. */
static void keep_memory_locked(void) {
    enum { COUNT = 60000 };
    static void *block[COUNT];
    struct weir_pressure_event event;
    struct rlimit memory;
    CHECK(getrlimit(RLIMIT_MEMLOCK, &memory) == 0);
    if (memory.rlim_cur < 256 << 20 && getuid() != 0) unlink(name), skip_all("no memory may be locked here");
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    for (int i = 0; i < COUNT; i++) CHECK(block[i] = malloc(500)), memset(block[i], 1, 500);
    for (int i = 0; i < COUNT; i++) free(block[i]);
    CHECK(p_pressure_latest(&event, sizeof event) == 0);
    set("limit", 1 << 20);
    unsigned first = event.generation;
    WAIT_FOR((CHECK(p_pressure_latest(&event, sizeof event) == 0), event.cause == 2 && event.generation - first >= 2));
}

static void *in_other_thread(void *unused) {
    char line[100];
    WAIT_FOR((status(getpid(), "State:", line, sizeof line), strchr(line, 'Z')));
    keep_memory_locked();
    CHECK(has_line());
    _exit(0);
}

int main(int argc, char **argv) {
    alarm(LIFETIME);
    CHECK(argc >= 2);
    const char *which = argv[1];
    if (strcmp(which, "data") == 0) {
        take_number(O_RDWR), free_twice();
        CHECK(!has_line());
    } else if (strcmp(which, "log") == 0) {
        take_number(O_WRONLY | O_APPEND), free_twice();
        CHECK(has_line());
    } else if (strcmp(which, "same") == 0) { /* what the program was started with, at the number again */
        take_number(O_RDWR);
        CHECK(dup2(kept, 2) == 2);
        free_twice();
        CHECK(!has_line());
    } else if (strcmp(which, "pipe") == 0) {
        int ends[2];
        char text[512];
        take_number(O_RDWR);
        CHECK(pipe(ends) == 0 && dup2(ends[1], 2) == 2);
        free_twice();
        CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && read(ends[0], text, sizeof text) > 6 && memcmp(text, "weir: ", 6) == 0);
    } else if (strcmp(which, "connection") == 0) {
        int ends[2];
        char text[512];
        take_number(O_RDWR);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && dup2(ends[1], 2) == 2);
        free_twice();
        CHECK(recv(ends[0], text, sizeof text, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    } else if (strcmp(which, "journal") == 0) { /* a socket from the start on, then full: nothing waits for its reader */
        int ends[2];
        char text[512];
        take_number(O_RDWR);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && dup2(ends[1], 2) == 2);
        pid_t child = fork();
        if (child == 0) execl("/proc/self/exe", "standard_error", "in-journal", NULL), _exit(2);
        CHECK(ends_well(child));
        CHECK(recv(ends[0], text, sizeof text, MSG_DONTWAIT) > 6 && memcmp(text, "weir: ", 6) == 0);
    } else if (strcmp(which, "in-journal") == 0) {
        static char zeros[4096];
        free_twice();
        while (send(2, zeros, sizeof zeros, MSG_DONTWAIT) > 0) {}
        while (send(2, zeros, 1, MSG_DONTWAIT) > 0) {}
        free_twice();
        return 0;
    } else if (strcmp(which, "unread") == 0) { /* a pipe that nobody reads: no SIGPIPE, and none that stays pending */
        int ends[2];
        sigset_t pipe_signal, set;
        sigemptyset(&pipe_signal), sigaddset(&pipe_signal, SIGPIPE);
        take_number(O_RDWR);
        CHECK(pipe(ends) == 0 && dup2(ends[1], 2) == 2 && close(ends[0]) == 0);
        CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR && sigprocmask(SIG_UNBLOCK, &pipe_signal, NULL) == 0);
        free_twice();
        CHECK(sigprocmask(SIG_BLOCK, &pipe_signal, &set) == 0 && !sigismember(&set, SIGPIPE));
        free_twice();
        CHECK(sigpending(&set) == 0 && !sigismember(&set, SIGPIPE));
        CHECK(raise(SIGPIPE) == 0);
        free_twice(); /* the program's own signal stays */
        CHECK(sigpending(&set) == 0 && sigismember(&set, SIGPIPE));
        pid_t child = fork(); /* and before main */
        if (child == 0) {
            CHECK(sigprocmask(SIG_UNBLOCK, &pipe_signal, NULL) == 0 && setenv("WEIR_LIMTI", "1", 1) == 0);
            execl("/proc/self/exe", "standard_error", "nothing", NULL), _exit(2);
        }
        CHECK(ends_well(child));
    } else if (strcmp(which, "full") == 0) { /* a log as long as a file may be: no SIGXFSZ */
        struct rlimit length;
        CHECK(getrlimit(RLIMIT_FSIZE, &length) == 0);
        take_number(O_WRONLY | O_APPEND);
        length.rlim_cur = 7;
        CHECK(signal(SIGXFSZ, SIG_DFL) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &length) == 0);
        free_twice();
        CHECK(!has_line());
    } else if (strcmp(which, "nothing") == 0) {
        return 0;
    } else if (strcmp(which, "alone") == 0) { /* a file from the start on, and a main thread that has ended before another */
        take_number(O_RDWR);
        pid_t child = fork();
        if (child == 0) execl("/proc/self/exe", "standard_error", "in-alone", name, NULL), _exit(2);
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
        if (WEXITSTATUS(status) == 77) exit(77);
    } else if (strcmp(which, "in-alone") == 0) {
        pthread_t thread;
        CHECK(argc == 3 && pthread_create(&thread, NULL, in_other_thread, strcpy(name, argv[2])) == 0);
        pthread_exit(NULL);
    } else if (strcmp(which, "own-log") == 0) {
        take_number(O_WRONLY | O_APPEND), keep_memory_locked();
        CHECK(has_line());
    } else if (strcmp(which, "own-data") == 0) {
        take_number(O_RDWR), keep_memory_locked();
        CHECK(!has_line());
    } else CHECK(!"known");
    unlink(name);
    return 0;
}
