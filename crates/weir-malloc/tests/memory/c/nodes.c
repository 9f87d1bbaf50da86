/* On a machine of several NUMA nodes: what a thread allocates lies on its node, also after threads of other nodes freed what it
   had, and what is freed goes back on each. A thread runs on one CPU of each of two nodes, one after the other. */
#include "check.h"
#include <sched.h>
#include <sys/syscall.h>

enum { NODES = 2, SIZES = 5, ASKED = 2000, MOST = 20000, BYTES = 16 << 20, PAGE = 4096 };
static const size_t sizes[SIZES] = {48, 1000, 8000, 100000, 5 << 20};
static int cpu_of[NODES], node_of[NODES];

static void go_to(int which) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu_of[which], &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}

/* One CPU on each of two nodes, of those that the program may use; whether there are two. */
static int find_nodes(void) {
    cpu_set_t all;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    int found = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && found < NODES; cpu++) {
        unsigned node;
        if (!CPU_ISSET(cpu, &all)) continue;
        cpu_of[found] = cpu;
        go_to(found);
        CHECK(syscall(SYS_getcpu, NULL, &node, NULL) == 0);
        if (found == 0 || node_of[0] != (int)node) node_of[found++] = (int)node;
    }
    return found == NODES;
}

/* Of the pages that blocks begin on, as many percent lie on a node. Asked of at most ASKED of the blocks. */
static size_t percent_on(int which, void **blocks, size_t count) {
    static void *pages[ASKED];
    static int nodes[ASKED];
    size_t step = count / ASKED + 1, asked = 0, there = 0;
    for (size_t i = 0; i < count; i += step) pages[asked++] = (void *)((uintptr_t)blocks[i] / PAGE * PAGE);
    CHECK(syscall(SYS_move_pages, 0, asked, pages, NULL, nodes, 0) == 0);
    for (size_t i = 0; i < asked; i++) there += nodes[i] == node_of[which];
    return there * 100 / asked;
}

/* BYTES of blocks of a size, at most MOST of them, written, by a thread on a node's CPU. */
static size_t take(int which, size_t size, void **blocks) {
    go_to(which);
    size_t count = BYTES / size < MOST ? BYTES / size : MOST;
    for (size_t i = 0; i < count; i++) {
        CHECK((blocks[i] = malloc(size)) != NULL);
        fill(blocks[i], size, i);
    }
    return count;
}

static void give(int which, size_t size, void **blocks, size_t count) {
    go_to(which);
    for (size_t i = 0; i < count; i++) {
        CHECK(holds(blocks[i], size, i));
        free(blocks[i]);
    }
}

static void *blocks[NODES][MOST];

/* Each node's blocks are freed on the CPU of `shift` nodes further; before that, how many percent lay on the right node. */
static void round_of(size_t size, int shift, int least) {
    size_t count = 0;
    for (int which = 0; which < NODES; which++) count = take(which, size, blocks[which]);
    for (int which = 0; which < NODES; which++) {
        size_t percent = percent_on(which, blocks[which], count);
        printf("%7zu B on node %d: %zu %%\n", size, node_of[which], percent);
        CHECK(percent >= (size_t)least || !is_weir());
    }
    for (int which = 0; which < NODES; which++) give((which + shift) % NODES, size, blocks[which], count);
}

int main(void) {
    alarm(LIFETIME);
    if (!find_nodes()) skip_all("one NUMA node");
    ignore_stalls();
    size_t before = resident_bytes();
    for (int i = 0; i < SIZES; i++) {
        /* Nothing was freed on another node yet, but what the program's start left on a CPU. */
        round_of(sizes[i], 1, 99);
        /* A block mapped on its own is kept for whoever wants one next. */
        if (sizes[i] > 4 << 20) continue;
        /* A CPU hands out again what its buckets hold, of whichever node. */
        round_of(sizes[i], 1, 75);
        round_of(sizes[i], 0, 75);
    }
    /* The program looks so often that Weir takes it for busy: of some 70 MiB buckets and depots keep a part. */
    WAIT_FOR(resident_bytes() < before + (24 << 20) || !is_weir());
    return 0;
}
