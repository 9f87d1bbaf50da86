/* argv[1]: which wrong free. Prints the pointer, frees it wrongly, and must not come to its end. */
#include "check.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static void wrong(void *pointer) {
    dprintf(1, "%p\n", pointer);
    free(pointer);
}

/* Objects wait in caches before anyone looks at them: whoever was freed twice must be found when they move. */
static void stir(void) {
    static void *block[5000];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 5000; i++) block[i] = malloc(100);
        for (int i = 0; i < 5000; i++) free(block[i]);
    }
    malloc_trim(0);
}

/* Runs on the program's own thread, to which other signals come as before, and lets it go on. */
static void returns(int number) {
    CHECK(number == SIGABRT && syscall(SYS_gettid) == getpid());
    sigset_t blocked;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0 && !sigismember(&blocked, SIGALRM));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    alarm(LIFETIME);
    const char *which = argv[1];
    void *keep[64], *p;
    for (int i = 0; i < 64; i++) keep[i] = malloc(100);
    if (strstr(which, "-handled")) CHECK(signal(SIGABRT, returns) != SIG_ERR);
    if (strstr(which, "-ignored")) CHECK(signal(SIGABRT, SIG_IGN) != SIG_ERR);
    if (strcmp(which, "twice") == 0 || strcmp(which, "twice-handled") == 0 || strcmp(which, "twice-ignored") == 0) {
        free(keep[9]);
        wrong(keep[9]);
    } else if (strcmp(which, "twice-later") == 0) {
        free(keep[9]);
        for (int i = 20; i < 40; i++) free(keep[i]);
        wrong(keep[9]);
        stir();
    } else if (strcmp(which, "twice-in-turn") == 0 || strcmp(which, "inside-in-turn") == 0) {
        /* With others between, so that no neighbour is the same; found before anything is handed out again. */
        static void *others[600];
        for (int i = 0; i < 600; i++) others[i] = malloc(100);
        p = (char *)keep[9] + (which[0] == 'i' ? 16 : 0);
        dprintf(1, "%p\n", p);
        for (int i = 0; i < 600; i++) {
            free(others[i]);
            if (i % 7 == 0) free(p);
        }
    } else if (strcmp(which, "twice-between") == 0) {
        /* Never leaves the bucket: only WEIR_CHECK=1 sees it. */
        free(keep[9]), free(keep[10]);
        wrong(keep[9]);
    } else if (strcmp(which, "inside-at-once") == 0) {
        wrong((char *)keep[9] + 16);
    } else if (strcmp(which, "unaligned-at-once") == 0) {
        wrong((char *)keep[9] + 1);
    } else if (strcmp(which, "inside-late") == 0) {
        /* After so many batches that only some are looked at for double frees. */
        static void *many[1000];
        for (int round = 0; round < 200; round++) {
            for (int i = 0; i < 1000; i++) many[i] = malloc(100);
            for (int i = 0; i < 1000; i++) {
                free(many[i]);
                if (round == 150 && i == 455) wrong((char *)keep[9] + 16);
            }
            if (round == 150) break;
        }
    } else if (strcmp(which, "twice-after-trim") == 0) {
        for (int i = 0; i < 64; i++) free(keep[i]);
        malloc_trim(0);
        wrong(keep[9]);
        stir();
    } else if (strncmp(which, "twice-unseen", 12) == 0) {
        /* Found by the background thread, which has no standard error of its own. */
        for (int i = 0; i < 64; i++) free(memset(malloc(1 << 20), 1, 1 << 20));
        void *large[64];
        for (int i = 0; i < 64; i++) large[i] = memset(malloc(1 << 20), 1, 1 << 20);
        for (int i = 0; i < 64; i++) free(large[i]);
        free(keep[9]), free(keep[10]);
        wrong(keep[9]);
        for (;;) pause();
    } else if (strcmp(which, "twice-large") == 0) {
        free(p = malloc(300000));
        wrong(p);
    } else if (strcmp(which, "twice-huge") == 0) {
        free(p = malloc(64 << 20));
        wrong(p);
    } else if (strcmp(which, "freed-huge-realloc") == 0) {
        free(p = malloc(6 << 20));
        wrong(p);
        p = realloc(p, 7 << 20);
    } else if (strcmp(which, "twice-realloc") == 0) {
        p = malloc(100);
        CHECK(realloc(p, 100000) != p);
        wrong(p);
        stir();
    } else if (strcmp(which, "inside") == 0) {
        wrong((char *)keep[9] + 16);
        stir();
    } else if (strcmp(which, "unaligned") == 0) {
        wrong((char *)keep[9] + 1);
        stir();
    } else if (strcmp(which, "inside-large") == 0) {
        p = malloc(300000);
        wrong((char *)p + 8192);
    } else if (strcmp(which, "inside-huge") == 0) {
        p = malloc(64 << 20);
        wrong((char *)p + (1 << 20));
    } else if (strcmp(which, "stack") == 0) {
        char local[64];
        wrong(local);
    } else if (strcmp(which, "static") == 0) {
        static long variable[8];
        wrong(variable);
    } else if (strcmp(which, "mapped") == 0) {
        wrong(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    } else if (strcmp(which, "wild") == 0) {
        wrong((void *)0x123456789abc0);
    } else if (strcmp(which, "realloc-wild") == 0) {
        dprintf(1, "%p\n", (void *)0x1234567890);
        p = realloc((void *)0x1234567890, 100);
    } else if (strcmp(which, "size-inside-huge") == 0) {
        p = (char *)malloc(5 << 20) + 4096;
        dprintf(1, "%p\n", p);
        CHECK(malloc_usable_size(p) == 0);
    } else {
        CHECK(!"known");
    }
    dprintf(2, "survived\n");
    return 0;
}
