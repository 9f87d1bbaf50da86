/* weir.h's zones, by their contract. Under another malloc there are none: then there is nothing to check. */
#include "check.h"

#include <sys/mman.h>
#include "weir.h"

NAMED(zone_create) NAMED(zone_destroy) NAMED(zone_alloc) NAMED(zone_alloc_first) NAMED(zone_free)
NAMED(zone_offline) NAMED(zone_online) NAMED(zone_base) NAMED(zone_usage) NAMED(set_reporting)
NAMED(trim)

enum { MIB = 1 << 20, RUN = 64 << 10 };

static struct weir_zone_usage usage_of(weir_zone *zone) {
    struct weir_zone_usage usage;
    CHECK(p_zone_usage(zone, &usage, sizeof usage) == 0);
    return usage;
}

static size_t resident(const char *at, size_t len) {
    static unsigned char pages[16 * MIB / 4096];
    CHECK(mincore((void *)at, len, pages) == 0);
    size_t count = 0;
    for (size_t i = 0; i < len / 4096; i++) count += pages[i] & 1;
    return count * 4096;
}

static void life(unsigned kind, int fd) {
    weir_zone *zone = p_zone_create(kind, 8 * MIB, fd);
    if (!zone && kind == WEIR_ZONE_LOCKED) return skip_part("a locked zone: ulimit -l is too low");
    CHECK(zone);
    char *run[8 * MIB / RUN];
    for (int i = 0; i < 8 * MIB / RUN; i++) CHECK((run[i] = p_zone_alloc(zone, RUN, 0))), memset(run[i], i + 1, RUN);
    CHECK(!p_zone_alloc(zone, 1, 0) && errno == ENOMEM);
    CHECK(p_zone_destroy(zone) == -1 && errno == EBUSY);
    CHECK(p_zone_offline(zone, 0, 2 * MIB) == -1 && errno == EBUSY);
    for (int i = 1; i < 8 * MIB / RUN; i++) CHECK(p_zone_free(zone, run[i], RUN) == 0);
    CHECK(p_zone_free(zone, run[1], RUN) == -1 && errno == EINVAL);
    int stays = kind == WEIR_ZONE_LOCKED;
    CHECK((int)usage_of(zone).is_reported == !stays);
    p_set_reporting(0), p_trim();
    CHECK(usage_of(zone).idle_bytes == 8 * MIB - RUN);
    p_set_reporting(1), p_trim();
    CHECK(usage_of(zone).idle_bytes == (stays ? 8 * MIB - RUN : 0));
    CHECK(resident(p_zone_base(zone), 8 * MIB) == (stays ? 8 * MIB : RUN));
    for (int i = 0; i < RUN; i++) CHECK(run[0][i] == 1);
    CHECK(p_zone_free(zone, run[0], RUN) == 0);
    CHECK(p_zone_offline(zone, 1, 2 * MIB) == -1 && errno == EINVAL);
    CHECK(p_zone_offline(zone, 0, 8 * MIB) == 0 && usage_of(zone).offline_bytes == 8 * MIB);
    CHECK(!p_zone_alloc(zone, 1, 0));
    CHECK(p_zone_online(zone, 0, 8 * MIB) == 0);
    CHECK((run[0] = p_zone_alloc(zone, 4 * MIB, 4 * MIB)) && (size_t)run[0] % (4 * MIB) == 0);
    CHECK(p_zone_free(zone, run[0], 4 * MIB) == 0 && p_zone_destroy(zone) == 0);
}

/* The zone is the first of a list: what is below its low mark stays for callers that have no other memory. */
static void first_of_a_list(void) {
    weir_zone *zone = p_zone_create(WEIR_ZONE_ANONYMOUS, 8 * MIB, -1);
    CHECK(zone);
    CHECK(!p_zone_alloc_first(NULL, RUN) && errno == EINVAL);
    CHECK(!p_zone_alloc_first(zone, 0) && errno == EINVAL);
    CHECK(!p_zone_alloc_first(zone, 4 * MIB + 1) && errno == EINVAL);
    char *run[8 * MIB / RUN];
    int count = 0;
    while ((run[count] = p_zone_alloc_first(zone, RUN))) memset(run[count], count, RUN), count++;
    CHECK(errno == ENOMEM);
    CHECK(count > 8 * MIB / RUN / 2 && count < 8 * MIB / RUN);
    CHECK((run[count] = p_zone_alloc(zone, RUN, 0)));
    CHECK(p_zone_free(zone, run[0], RUN / 2) == -1 && errno == EINVAL);
    for (int i = 0; i <= count; i++) CHECK(p_zone_free(zone, run[i], RUN) == 0);
    CHECK(p_zone_destroy(zone) == 0);
}

/* A zone of a forked child's parent is destroyed whatever the parent has in use, and stays the parent's. */
static void in_a_child(int fd) {
    weir_zone *zone = p_zone_create(WEIR_ZONE_MEMFD, 8 * MIB, fd);
    CHECK(zone);
    char *run = p_zone_alloc(zone, RUN, 0), *other = p_zone_alloc(zone, RUN, 0);
    CHECK(run && other);
    memset(run, 7, RUN);
    pid_t child = fork();
    if (child == 0) {
        CHECK(!p_zone_alloc(zone, RUN, 0) && p_zone_free(zone, other, RUN) == 0);
        CHECK(p_zone_destroy(zone) == 0);
        _exit(0);
    }
    CHECK(ends_well(child));
    for (int i = 0; i < RUN; i++) CHECK(run[i] == 7);
    CHECK(p_zone_destroy(zone) == -1 && errno == EBUSY);
    CHECK(p_zone_free(zone, run, RUN) == 0 && p_zone_free(zone, other, RUN) == 0 && p_zone_destroy(zone) == 0);
}

int main(void) {
    if (!p_zone_create && !is_weir()) skip_all("it is of Weir's own");
    CHECK(!p_zone_create(WEIR_ZONE_ANONYMOUS, MIB, -1) && errno == EINVAL);
    CHECK(!p_zone_create(99, 2 * MIB, -1) && errno == EINVAL);
    CHECK(!p_zone_create(WEIR_ZONE_MEMFD, 2 * MIB, -1) && errno == EBADF);
    life(WEIR_ZONE_ANONYMOUS, -1);
    int fd = memfd_create("zone", MFD_CLOEXEC);
    if (fd >= 0) {
        CHECK(ftruncate(fd, 8 * MIB) == 0);
        life(WEIR_ZONE_MEMFD, fd);
        in_a_child(fd);
    }
    life(WEIR_ZONE_LOCKED, -1);
    first_of_a_list();
    return 0;
}
