/* What stays resident after a peak of a program's own cache and of pages, once all is freed and given back. */
#include "check.h"
#include "weir.h"

enum { OBJECTS = 2000000, PAGES = 200000 };

NAMED(cache_create) NAMED(cache_destroy) NAMED(cache_alloc) NAMED(cache_free)

static long resident_kib(void) { return resident_bytes() / 1024; }

int main(void) {
    if (!is_weir()) skip_all("it is of Weir's own");
    free(malloc(100));
    malloc_trim(0);
    long start = resident_kib();
    weir_cache *cache = p_cache_create("retained", 16, 8, NULL, NULL, NULL, NULL, 0);
    void **object = malloc(OBJECTS * sizeof *object);
    CHECK(cache && object);
    for (int i = 0; i < OBJECTS; i++) CHECK((object[i] = p_cache_alloc(cache)));
    for (int i = 0; i < OBJECTS; i++) p_cache_free(cache, object[i]);
    for (int i = 0; i < PAGES; i++) CHECK((object[i] = malloc(4000))), *(char *)object[i] = 1;
    for (int i = 0; i < PAGES; i++) free(object[i]);
    free(object);
    malloc_trim(0);
    long trimmed = resident_kib();
    CHECK(p_cache_destroy(cache) == 0);
    malloc_trim(0);
    long end = resident_kib();
    printf("%ld KiB at the start, %ld after the peak, %ld without the cache\n", start, trimmed, end);
    /* Without shells and descriptions going back: 23 MiB more. What is left is the library's own data and code. */
    CHECK(trimmed < start + 3 * 1024 && end < start + 3 * 1024);
    return 0;
}
