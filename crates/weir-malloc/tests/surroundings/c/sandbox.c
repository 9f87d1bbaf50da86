/* A filter that comes late and refuses, with an error, what only a memory manager would ask for. Nothing may fail that
 * the C library's own malloc can do. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const int refused[] = {SYS_membarrier, SYS_process_madvise, SYS_mincore, SYS_tgkill,    SYS_openat,
                              SYS_prctl,      SYS_unshare,         SYS_close_range, SYS_mremap, SYS_getrandom,
                              SYS_sched_getaffinity, SYS_mbind,    SYS_clone,       SYS_rseq};

/* One that ends the calling thread, as the background thread's call. */
static int filter_kills(void) {
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kcmp, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pread64, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof lines / sizeof *lines, lines};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 0;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

static void work(void) {
    enum { COUNT = 3000 };
    static unsigned char *block[COUNT];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) CHECK(block[i] = malloc(i * 5)), fill(block[i], i * 5, i);
        for (int i = 0; i < COUNT; i++) CHECK(holds(block[i], i * 5, i)), free(block[i]);
        unsigned char *large = malloc(9 << 20);
        CHECK(large), fill(large, 9 << 20, round);
        CHECK(large = realloc(large, 40 << 20));
        CHECK(holds(large, 9 << 20, round));
        CHECK(large = realloc(large, 6 << 20));
        CHECK(holds(large, 6 << 20, round)), free(large);
        large = calloc(1, 30 << 20);
        for (int i = 0; i < 30 << 20; i += 4096) CHECK(large[i] == 0), large[i] = 1;
        free(large);
        malloc_trim(0);
    }
}

/* Memory goes back though no background thread lives: the program's own threads see to it, as they allocate. */
static void without_the_thread(int late) {
    enum { COUNT = 40000, SIZE = 4000 };
    static char *block[COUNT];
    if (late) work();
    size_t before = resident_bytes();
    if (!filter_kills()) skip_all("no filter may be set here");
    for (int i = 0; i < COUNT; i++) CHECK(block[i] = malloc(SIZE)), memset(block[i], 1, SIZE);
    for (int i = 0; i < COUNT; i++) free(block[i]);
    /* Windows end as the program goes on: after so many rounds, however long they take. */
    for (int round = 0; resident_bytes() > before + (COUNT / 2) * SIZE; round++) {
        CHECK(round < 150);
        usleep(50000);
        for (int i = 0; i < 300; i++) CHECK(block[i] = malloc(700 + i * 20)), block[i][0] = 1;
        for (int i = 0; i < 300; i++) free(block[i]);
    }
}

static int filter(void) {
    struct sock_filter lines[2 * 32], *line = lines;
    *line++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        *line++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], 0, 1);
        *line++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1);
    }
    *line++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {line - lines, lines};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 0;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

int main(int count, char **arguments) {
    alarm(LIFETIME);
    /* Early: before the first block of any size but the loader's. Late: when all of Weir is running. */
    int late = count > 1 && strstr(arguments[1], "late");
    if (count > 1 && strstr(arguments[1], "killed")) return without_the_thread(late), 0;
    if (late) work();
    if (!filter()) skip_all("no filter may be set here");
    work();
    return 0;
}
