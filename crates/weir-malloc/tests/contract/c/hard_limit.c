/* At WEIR_HARD_LIMIT every way to get memory ends in ENOMEM, and the program lives. */
#include "check.h"
#include <fcntl.h>

static size_t limit;

/* Open from the start: at the limit there is no memory for a stream. */
static int statm;

static size_t resident(void) {
    char text[128] = "";
    unsigned long size, pages;
    CHECK(pread(statm, text, sizeof text - 1, 0) > 0 && sscanf(text, "%lu %lu", &size, &pages) == 2);
    return pages * 4096;
}

struct node { struct node *next; };

/* Allocates until that fails, touches all of it, and frees it. */
static void use_up(void *(*get)(size_t), size_t size) {
    struct node *first = NULL;
    size_t held = 0;
    for (;;) {
        errno = 0;
        struct node *block = get(size);
        if (!block) break;
        memset(block, 1, size);
        block->next = first;
        first = block;
        held += malloc_usable_size(block);
        CHECK(held <= limit);
    }
    CHECK(errno == ENOMEM);
    CHECK(held > limit / 2);
    /* Code, stacks and libraries are not the heap's. */
    CHECK(resident() < limit + (16 << 20));
    while (first) {
        struct node *next = first->next;
        free(first);
        first = next;
    }
}

static void *zeroed(size_t size) { return calloc(1, size); }
static void *grown(size_t size) {
    char *block = malloc(16);
    if (!block) return NULL;
    char *more = realloc(block, size);
    if (!more) {
        int error = errno;
        free(block);
        errno = error;
    }
    return more;
}
static void *in_pages(size_t size) {
    void *block = NULL;
    int error = posix_memalign(&block, 4096, size);
    if (error) errno = error;
    return error ? NULL : block;
}

int main(void) {
    limit = strtoull(getenv("WEIR_HARD_LIMIT"), NULL, 10);
    CHECK(limit > 0);
    CHECK((statm = open("/proc/self/statm", O_RDONLY)) >= 0);
    static const size_t sizes[] = {200, 3000, 300000, 6 << 20};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        use_up(malloc, sizes[i]);
        use_up(zeroed, sizes[i]);
        use_up(grown, sizes[i]);
        use_up(in_pages, sizes[i]);
    }
    /* One block that grows in place: what it holds is there when growth is refused. */
    size_t size = 8 << 20;
    char *block = malloc(size);
    CHECK(block);
    memset(block, 7, size);
    for (char *more; (more = realloc(block, size + (4 << 20))); size += 4 << 20) {
        block = more;
        memset(block + size, 7, 4 << 20);
        CHECK(size < limit);
    }
    CHECK(errno == ENOMEM);
    for (size_t i = 0; i < size; i += 4096) CHECK(block[i] == 7);
    free(block);
    CHECK((block = malloc(limit / 2)) != NULL);
    free(block);
    return 0;
}
