/* Where things lie: `placement` prints the addresses of what chance places, and of a mapping of its own; `placement beside`
 * looks for what lies beside blocks mapped on their own, which a program may write past the end of. */
#include "check.h"
#include <sys/mman.h>
#include "weir.h"

#define MIB ((size_t)1 << 20)
enum { BLOCKS = 64, OBJECTS = 1000000 };

NAMED(cache_create) NAMED(cache_alloc) NAMED(cache_free)

/* The end of the mappings without a gap that `address` lies in, as far as they can be written to. A library may follow,
 * which begins with a part that can only be read. */
static uintptr_t end_of(uintptr_t address) {
    char line[400];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    uintptr_t end = address;
    while (fgets(line, sizeof line, maps)) {
        uintptr_t from, to;
        char rights[5];
        CHECK(sscanf(line, "%lx-%lx %4s", &from, &to, rights) == 3);
        if (rights[0] == 'r' && rights[1] == 'w' && from <= end && end < to) end = to;
    }
    fclose(maps);
    return end;
}

static void beside(void) {
    static char *block[BLOCKS];
    static void *object[OBJECTS];
    for (int i = 0; i < BLOCKS; i++) CHECK((block[i] = malloc(5 * MIB + 4096 * (size_t)(i * 37 % 500))));
    /* A depot full of free objects of a cache of the program's own, and blocks mapped after. */
    weir_cache *cache = p_cache_create("beside", 64, 8, NULL, NULL, NULL, NULL, 0);
    CHECK(cache);
    for (int i = 0; i < OBJECTS; i++) CHECK((object[i] = p_cache_alloc(cache)));
    uintptr_t low = (uintptr_t)object[0], high = low;
    for (int i = 0; i < OBJECTS; i++) {
        uintptr_t at = (uintptr_t)object[i];
        low = at < low ? at : low, high = at > high ? at : high;
        p_cache_free(cache, object[i]);
        object[i] = NULL;
    }
    /* Blocks that lie side by side have one end: what was read up from another of them is not read again. */
    uintptr_t seen_from = 0, seen_to = 0;
    for (int i = 0; i < BLOCKS; i++) {
        uintptr_t from = (uintptr_t)block[i], to = end_of(from + malloc_usable_size(block[i]) - 1);
        if (to == seen_to && from >= seen_from) continue;
        uintptr_t rest = to == seen_to ? seen_from : to;
        seen_from = from, seen_to = to;
        int pointers = 0;
        for (uintptr_t *word = (uintptr_t *)from; word < (uintptr_t *)rest; word++) pointers += *word >= low && *word <= high;
        if (pointers > 0) printf("%d pointers into the heap behind the block at %lx\n", pointers, from);
        CHECK(pointers == 0);
    }
}

/* The lowest mapping from 64 TiB on that no program is loaded to: the metadata. 0: there is none. */
static uintptr_t metadata(void) {
    char line[400];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    uintptr_t from = 0, found = 0;
    while (!found && fgets(line, sizeof line, maps)) {
        CHECK(sscanf(line, "%lx-", &from) == 1);
        if (from >> 40 >= 102 && from >> 40 < 106) found = from;
    }
    fclose(maps);
    return found;
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "beside") == 0) {
        if (is_weir()) beside();
        return 0;
    }
    void *heap = malloc(40000), *own = malloc(8 * MIB);
    void *mapped = mmap(NULL, 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(heap && own && mapped != MAP_FAILED);
    printf("%p %p 0x%lx %p %p\n", heap, own, (unsigned long)metadata(), malloc(48), mapped);
    return 0;
}
