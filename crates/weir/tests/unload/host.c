/* Loads libraries, has each work, unloads them and forks; twice. argv[1]: the way they work; then the libraries. With
   WEIR_TEST_CLEARS it has no environment by then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(is_so) do { if (!(is_so)) { printf("%d: %s\n", __LINE__, #is_so); exit(1); } } while (0)
enum { MOST = 2 };

int main(int count, char **words) {
    CHECK(count > 2 && count - 2 <= MOST);
    if (getenv("WEIR_TEST_CLEARS")) clearenv();
    for (int round = 0; round < 2; round++) {
        void *library[MOST];
        for (int i = 0; i < count - 2; i++) {
            library[i] = dlopen(words[i + 2], RTLD_NOW | RTLD_LOCAL);
            if (!library[i]) {
                puts(dlerror());
                return 1;
            }
            int (*work)(unsigned) = (int (*)(unsigned))dlsym(library[i], "work");
            CHECK(work && work(atoi(words[1])) == 0);
        }
        for (int i = 0; i < count - 2; i++) CHECK(dlclose(library[i]) == 0);
        /* Weir's threads would run on in what is not there. */
        usleep(100000);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) _exit(0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    return 0;
}
