/* A program of one thread copies itself by `_Fork`, which runs no handlers, while the background thread is at work now and then.
 * Each child finds a heap that works, and knows that its parent's threads are not its own: one starts where there is work. */
#include "check.h"
#include "tasks.h"

enum { FORKS = 60, COUNT = 1200 };
static char *block[COUNT];

/* In slow paths of all kinds, and more than the background thread starts for. */
static void use_all(void) {
    for (int i = 0; i < COUNT; i++) CHECK(block[i] = malloc(1 + i * 10)), *block[i] = 1;
    for (int i = 0; i < COUNT; i++) free(block[i]);
    free(memset(malloc(6 << 20), 1, 6 << 20));
}

int main(void) {
    pid_t (*fork_bare)(void) = (__typeof__(fork_bare))dlsym(RTLD_DEFAULT, "_Fork");
    if (!fork_bare) skip_all("libc has no _Fork");
    alarm(LIFETIME);
    use_all();
    int own[MOST_TASKS], is_served = is_weir() && threads(own) > 0;
    for (int i = 0; i < FORKS; i++) {
        if (i % 10 == 0) use_all();
        if (i % 20 == 0) malloc_trim(0);
        pid_t child = fork_bare();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(LIFETIME);
            use_all();
            for (int tries = 0; is_served && i % 30 == 0 && threads(own) == 0; tries++) {
                CHECK(tries < 1000);
                use_all();
                usleep(10000);
            }
            pid_t grandchild = i % 10 == 0 ? fork() : -1;
            use_all();
            CHECK(grandchild <= 0 || ends_well(grandchild));
            _exit(0);
        }
        CHECK(ends_well(child));
    }
    return 0;
}
