/* Everything at once, and every byte checked. There are more threads than CPUs, frees by others through
 * queues, realloc, calloc, aligned blocks, trims, forks and signals. Arguments: seconds, and the seed,
 * which is printed. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

enum { THREADS = 8, QUEUE = 512, SLOTS = 300 };
struct block { unsigned char *bytes; size_t size; uint64_t seed; };
static struct { pthread_mutex_t lock; struct block ring[QUEUE]; unsigned head, tail; } queue[THREADS];
static volatile int stop;
static long done, ticks;
static uint64_t seed;

static void on_tick(int number) { __atomic_add_fetch(&ticks, 1, __ATOMIC_RELAXED); }

static size_t some_size(uint64_t *random) {
    switch (next_random(random) % 100) {
    case 0: return next_random(random) % (2 << 20);
    case 1 ... 4: return next_random(random) % 100000;
    case 5 ... 24: return next_random(random) % 5000;
    default: return next_random(random) % 300;
    }
}

static struct block make(uint64_t *random) {
    struct block block = {NULL, some_size(random), next_random(random)};
    switch (next_random(random) % 8) {
    case 0:
        CHECK(block.bytes = calloc(1, block.size));
        CHECK(all_zero(block.bytes, block.size));
        break;
    case 1: {
        size_t align = (size_t)16 << next_random(random) % 9;
        CHECK(block.bytes = aligned_alloc(align, block.size));
        CHECK(aligned(block.bytes, align));
        break;
    }
    default:
        CHECK(block.bytes = malloc(block.size));
    }
    CHECK(aligned(block.bytes, 16));
    fill(block.bytes, block.size, block.seed);
    return block;
}

static void check(const struct block *block) {
    CHECK(malloc_usable_size(block->bytes) >= block->size);
    CHECK(holds(block->bytes, block->size, block->seed));
}

static void drop(struct block *block) {
    check(block);
    free(block->bytes);
    block->bytes = NULL;
}

static void resize(struct block *block, uint64_t *random) {
    size_t size = some_size(random), kept = size < block->size ? size : block->size;
    if (size == 0) return;
    CHECK(block->bytes = realloc(block->bytes, size));
    CHECK(holds(block->bytes, kept, block->seed));
    block->size = size;
    fill(block->bytes, size, block->seed);
}

/* Gives the block to another thread; false if its queue is full. */
static int hand_over(struct block *block, int to) {
    pthread_mutex_lock(&queue[to].lock);
    int fits = queue[to].tail - queue[to].head < QUEUE;
    if (fits) queue[to].ring[queue[to].tail++ % QUEUE] = *block;
    pthread_mutex_unlock(&queue[to].lock);
    if (fits) block->bytes = NULL;
    return fits;
}

static void drain(int mine) {
    struct block block;
    for (;;) {
        pthread_mutex_lock(&queue[mine].lock);
        int got = queue[mine].tail != queue[mine].head;
        if (got) block = queue[mine].ring[queue[mine].head++ % QUEUE];
        pthread_mutex_unlock(&queue[mine].lock);
        if (!got) return;
        drop(&block);
    }
}

static void *work(void *argument) {
    int mine = (int)(intptr_t)argument;
    uint64_t random = seed * 1000 + mine * 7919 + 1;
    struct block slot[SLOTS] = {0};
    while (!stop) {
        for (int turn = 0; turn < 200; turn++) {
            struct block *block = &slot[next_random(&random) % SLOTS];
            if (!block->bytes) *block = make(&random);
            else switch (next_random(&random) % 4) {
                case 0: resize(block, &random); break;
                case 1: if (hand_over(block, next_random(&random) % THREADS)) break; /* fall through */
                default: drop(block);
            }
        }
        __atomic_add_fetch(&done, 200, __ATOMIC_RELAXED);
        drain(mine);
        if (next_random(&random) % 400 == 0) malloc_trim(0);
    }
    for (int i = 0; i < SLOTS; i++) if (slot[i].bytes) drop(&slot[i]);
    return NULL;
}

static int is_enough(void) {
    return __atomic_load_n(&done, __ATOMIC_RELAXED) > 1000 && __atomic_load_n(&ticks, __ATOMIC_RELAXED) > 10;
}

static void fork_once(int round) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(PATIENCE);
        uint64_t random = seed * 1000 + 100000 + round;
        for (int i = 0; i < 300; i++) {
            struct block block = make(&random);
            drop(&block);
        }
        malloc_trim(0);
        _exit(0);
    }
    int status;
    pid_t got;
    while ((got = waitpid(pid, &status, 0)) < 0 && errno == EINTR) {}
    CHECK(got == pid && status == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    double end = now() + atoi(argv[1]);
    seed = strtoull(argv[2], NULL, 10);
    dprintf(1, "seed %llu\n", (unsigned long long)seed);
    alarm(atoi(argv[1]) + LIFETIME);
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    struct itimerval often = {{0, 3000}, {0, 3000}};
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_mutex_init(&queue[i].lock, NULL);
    CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
    for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, work, (void *)i) == 0);
    /* For that long, and until enough was done, however busy the machine is. */
    for (int round = 0; now() < end || !is_enough(); round++) {
        fork_once(round);
        malloc_trim(0);
        usleep(50000); /* in which the threads run without forks */
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    for (int i = 0; i < THREADS; i++) drain(i);
    return 0;
}
