/* Loads a library, has it work, unloads it and forks; twice. argv[1]: the library; argv[2]: the way it works. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(is_so) do { if (!(is_so)) { printf("%d: %s\n", __LINE__, #is_so); exit(1); } } while (0)

int main(int count, char **words) {
    CHECK(count == 3);
    for (int round = 0; round < 2; round++) {
        void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            puts(dlerror());
            return 1;
        }
        int (*work)(unsigned) = (int (*)(unsigned))dlsym(library, "work");
        CHECK(work && work(atoi(words[2])) == 0);
        CHECK(dlclose(library) == 0);
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
