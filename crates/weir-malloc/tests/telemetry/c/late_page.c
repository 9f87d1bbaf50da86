/* A forked child that gave everything up before it allocates: root directory, user, descriptors. */
#include "check.h"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void churn(void) {
    enum { BLOCKS = 64, SIZE = 64 << 10 };
    void *blocks[BLOCKS];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            CHECK(blocks[i] = malloc(SIZE));
            memset(blocks[i], 1, SIZE);
        }
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
}

int main(int argc, char **argv) {
    churn();
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0) {
            CHECK(chdir(argv[1]) == 0 && chroot(".") == 0);
            CHECK(setgid(65534) == 0 && setuid(65534) == 0);
        }
        for (int fd = 3; fd < 1024; fd++) close(fd);
        churn();
        _exit(0);
    }
    CHECK(ends_well(child));
    return 0;
}
