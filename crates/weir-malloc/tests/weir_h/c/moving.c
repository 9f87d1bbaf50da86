/* Blocks that a program moves by itself. Under another malloc there is no advice: then there is nothing to check. */
#include "check.h"

#include "weir.h"

enum { SIZE = 120, MANY = 100000, KEEP = 16, PASSES = 5 };

NAMED(should_move) NAMED(alloc_to_move) NAMED(free_moved)

static void *blocks[MANY];
static uint64_t numbers[MANY];
static int count;

/* Allocates many blocks and frees all but a few, at random: `count` stay. */
static void thin(void) {
    uint64_t random = 88172645463325252u;
    for (int i = 0; i < MANY; i++) {
        CHECK((blocks[i] = malloc(SIZE)) != NULL);
        numbers[i] = (uint64_t)i;
        fill(blocks[i], SIZE, numbers[i]);
    }
    for (int i = 0; i < MANY; i++) {
        if (next_random(&random) % KEEP != 0) {
            free(blocks[i]);
            continue;
        }
        blocks[count] = blocks[i];
        numbers[count++] = numbers[i];
    }
}

/* Goes over all blocks, and moves those that should be. Returns how many were. */
static int pass(void) {
    int moved = 0;
    for (int i = 0; i < count; i++) {
        errno = 99;
        if (!p_should_move(blocks[i])) continue;
        void *copy = p_alloc_to_move(blocks[i]);
        CHECK(errno == 99);
        if (copy == NULL) continue;
        CHECK(copy != blocks[i] && aligned(copy, 16) && malloc_usable_size(copy) == malloc_usable_size(blocks[i]));
        memcpy(copy, blocks[i], malloc_usable_size(blocks[i]));
        p_free_moved(blocks[i]);
        CHECK(errno == 99);
        blocks[i] = copy;
        moved++;
    }
    return moved;
}

static void check_all(void) {
    for (int i = 0; i < count; i++) CHECK(holds(blocks[i], SIZE, numbers[i]));
}

int main(void) {
    if (!is_weir()) return 0;
    int here;
    CHECK(!p_should_move(NULL) && !p_should_move(&here) && !p_should_move((void *)-1) && !p_alloc_to_move(NULL));
    p_free_moved(NULL);
    void *large = malloc(100000);
    CHECK(!p_should_move(large) && p_alloc_to_move(large) == NULL);
    p_free_moved(large);

    thin();
    int first = pass();
    CHECK(first > count / 2);
    check_all();
    int passes = 1;
    while (pass() > 0) CHECK(++passes < PASSES);
    check_all();
    for (int i = 0; i < count; i++) free(blocks[i]);
    return 0;
}
