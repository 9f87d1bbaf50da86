/* weir_ctl, by its contract. Under another malloc there is none: then there is nothing to check. */
#include "check.h"

#include "weir.h"

NAMED(ctl) NAMED(trim) NAMED(usage)

static uint64_t value_of(const char *name) {
    uint64_t value = 0;
    size_t size = sizeof value;
    CHECK(p_ctl(name, &value, &size, NULL, 0) == 0 && size == sizeof value);
    return value;
}

static void settings(void) {
    uint64_t before, limit = (uint64_t)512 << 20;
    size_t size = sizeof before;
    errno = 0;
    CHECK(p_ctl("limit", &before, &size, &limit, sizeof limit) == 0 && size == 8 && before == 0);
    CHECK(value_of("limit") == limit);
    CHECK(p_ctl("limit", NULL, NULL, &before, sizeof before) == 0 && value_of("limit") == 0);
    CHECK(value_of("idle_ms") == 300);
    /* A write whose value comes from where the old one goes to. */
    uint64_t both = 400;
    CHECK(p_ctl("idle_ms", &both, &size, &both, sizeof both) == 0 && both == 300 && value_of("idle_ms") == 400);
    /* The value's size alone; and nothing at all. */
    size = 0;
    CHECK(p_ctl("idle_ms", NULL, &size, NULL, 0) == 0 && size == 8);
    CHECK(p_ctl("idle_ms", NULL, NULL, NULL, 0) == 0);
    /* Unaligned room and value, as callers may have them. */
    unsigned char room[9] = {0};
    CHECK(p_ctl("idle_ms", room + 1, &size, NULL, 0) == 0 && room[1] == (400 & 255) && room[2] == 1);
    CHECK(errno == 0);
}

static void refused(void) {
    uint64_t value = 7, ten = 10, huge = UINT64_MAX;
    size_t size = 8;
    CHECK(p_ctl(NULL, &value, &size, NULL, 0) == EINVAL);
    CHECK(p_ctl("", &value, &size, NULL, 0) == ENOENT);
    CHECK(p_ctl("limti", &value, &size, NULL, 0) == ENOENT);
    CHECK(p_ctl("stats.", &value, &size, NULL, 0) == ENOENT && p_ctl("stats.none", &value, &size, NULL, 0) == ENOENT);
    CHECK(p_ctl("LIMIT", &value, &size, NULL, 0) == ENOENT && p_ctl("\xff\xfe", &value, &size, NULL, 0) == ENOENT);
    CHECK(p_ctl("limit", &value, NULL, NULL, 0) == EINVAL);
    for (size = 0; size < 20; size++) {
        size_t given = size;
        CHECK(given == 8 || (p_ctl("limit", &value, &given, NULL, 0) == EINVAL && given == 8 && value == 7));
        CHECK(size == 8 || p_ctl("report_batch", NULL, NULL, &ten, size) == EINVAL);
    }
    CHECK(p_ctl("report_batch", NULL, NULL, NULL, 8) == EINVAL);
    size = 4; /* a read that is refused takes its write along */
    CHECK(p_ctl("report_batch", &value, &size, &ten, 8) == EINVAL && value_of("report_batch") == 16);
    size = 8;
    CHECK(p_ctl("report_batch", &value, &size, &huge, 8) == ERANGE && value == 7 && value_of("report_batch") == 16);
    uint64_t none = 0;
    CHECK(p_ctl("report_batch", NULL, NULL, &none, 8) == ERANGE);
    CHECK(p_ctl("stats.live_bytes", &value, &size, &ten, 8) == EPERM && value == 7);
}

static void figures(void) {
    struct weir_usage all;
    void *block = memset(malloc(3 << 20), 1, 3 << 20), *mapped = memset(malloc(64 << 20), 1, 64 << 20);
    CHECK(p_usage(&all, sizeof all) == 0);
    CHECK(value_of("stats.live_bytes") >= (3 << 20) && all.live_bytes >= (3 << 20));
    CHECK(value_of("stats.mapped_count") == all.mapped_count && all.mapped_count == 1);
    CHECK(value_of("stats.mapped_bytes") == all.mapped_bytes && all.mapped_bytes >= (64 << 20));
    CHECK(value_of("stats.address_space_bytes") == all.address_space_bytes);
    CHECK(value_of("stats.metadata_bytes") == all.metadata_bytes);
    /* The effect of a setting is there when the call returns. */
    uint64_t off = 0, on = 1;
    CHECK(p_ctl("report", NULL, NULL, &off, sizeof off) == 0);
    free(block);
    CHECK(p_trim() == 0 && value_of("stats.idle_bytes") >= (3 << 20));
    CHECK(p_ctl("report", NULL, NULL, &on, sizeof on) == 0);
    CHECK(value_of("report") == 1);
    p_trim();
    WAIT_FOR(value_of("stats.idle_bytes") < (3 << 20));
    free(mapped);
}

int main(void) {
    if (!is_weir()) skip_all("it is of Weir's own");
    refused();
    settings();
    figures();
    return 0;
}
