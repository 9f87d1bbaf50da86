/* A program that takes memory at full speed beside a full evictable cache, in a group without swap: the cache gives way before
 * the program touches what it gets. Argument: what it takes, "blocks", "runs" or "zone". */
#include "group.h"
#include "weir.h"

NAMED(evictable_create) NAMED(evictable_prepare) NAMED(evictable_value)
NAMED(evictable_publish) NAMED(evictable_cancel) NAMED(evictable_release)
NAMED(zone_create) NAMED(zone_alloc)

enum { LIMIT = 80 << 20, VALUE = 5000, TAKEN = 48 << 20 };

static void fill_up(weir_evictable *cache) {
    for (long key = 0; key < LIMIT / VALUE; key++) {
        weir_entry *entry = p_evictable_prepare(cache, &key, sizeof key, VALUE);
        if (!entry) continue;
        memset(p_evictable_value(cache, entry, NULL), 1, VALUE);
        if (p_evictable_publish(cache, entry) == 0) p_evictable_release(cache, entry);
        else p_evictable_cancel(cache, entry);
    }
}

static void child(const char *kind) {
    alarm(PATIENCE);
    CHECK(write_to("cgroup.procs", "0"));
    weir_evictable *cache = p_evictable_create(NULL, 0);
    weir_zone *zone = p_zone_create(WEIR_ZONE_ANONYMOUS, 2 * TAKEN, -1);
    CHECK(cache && zone);
    size_t size = !strcmp(kind, "blocks") ? 8 << 20 : !strcmp(kind, "runs") ? 4 << 20 : 1 << 20;
    fill_up(cache);
    for (size_t taken = 0; taken < TAKEN; taken += size) {
        char *bytes = !strcmp(kind, "zone") ? p_zone_alloc(zone, size, 0) : malloc(size);
        CHECK(bytes);
        memset(bytes, 1, size);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    alarm(LIFETIME);
    CHECK(argc == 2);
    if (!is_weir()) skip_all("caches that give way are Weir's own");
    if (!make_group(LIMIT)) rmdir(group), skip_all("no control group (v1, memory) may be made here");
    int status, killed = 5, failed = 0;
    /* The balancer may get no CPU for as long as the program waits: another five then. Without a wait most of each are killed. */
    for (int tries = 0; tries < 3 && killed > 1; tries++) {
        killed = 0;
        for (int round = 0; round < 5; round++) {
            pid_t pid = fork();
            if (pid == 0) child(argv[1]);
            CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
            if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) killed++;
            else failed += status != 0;
        }
    }
    while (rmdir(group) != 0 && errno == EBUSY) usleep(1000);
    CHECK(failed == 0);
    CHECK(killed <= 1);
    return 0;
}
