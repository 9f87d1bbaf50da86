/* weir.h's shrinkers and subscribers to pressure. argv[1] is what is tested. Under another malloc there are none. */
#include "check.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include "tasks.h"
#include "weir.h"

NAMED(shrinker_register) NAMED(unregister) NAMED(callback_stats) NAMED(pressure_subscribe)
NAMED(pressure_fd) NAMED(pressure_latest) NAMED(queue_create) NAMED(queue_destroy) NAMED(queue_fd)
NAMED(queue_serve) NAMED(may_grow) NAMED(on_limit) NAMED(resume_after_fork) NAMED(trim)

/* Pressure begins and ends with a limit far below what is in use. */
static void limit(uint64_t bytes) { set("limit", bytes); }

/* Bytes of this process. */
static uint64_t resident(void) {
    char line[100] = "";
    status(getpid(), "VmRSS:", line, sizeof line);
    long kib = atol(line + strlen("VmRSS:"));
    CHECK(kib > 0);
    return (uint64_t)kib << 10;
}

/* A cache of blocks of 4,000 bytes: a stack under a lock. */
struct cache {
    pthread_mutex_t lock;
    void **blocks;
    size_t count;
    volatile int relieved, scans;
    volatile int tid, blocked;
    weir_callback *callback;
};
enum { BLOCK = 4000 };

static void fill_cache(struct cache *cache, size_t count) {
    pthread_mutex_init(&cache->lock, NULL);
    cache->blocks = malloc(count * sizeof *cache->blocks);
    for (cache->count = 0; cache->count < count; cache->count++) {
        CHECK(cache->blocks[cache->count] = malloc(BLOCK));
        memset(cache->blocks[cache->count], 1, BLOCK);
    }
}

static size_t count_cache(void *data) {
    struct cache *cache = data;
    pthread_mutex_lock(&cache->lock);
    size_t bytes = cache->count * BLOCK;
    pthread_mutex_unlock(&cache->lock);
    return bytes;
}

static size_t scan_cache(size_t bytes, int reason, void *data) {
    struct cache *cache = data;
    /* Mild where the marks that pressure raised have not fallen back yet. */
    CHECK(reason >= WEIR_SCAN_MILD && reason <= WEIR_SCAN_SHORTAGE);
    free(malloc(100000)); /* callbacks may allocate */
    cache->tid = (int)syscall(SYS_gettid);
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    cache->blocked = sigismember(&mask, SIGTERM) && sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGSEGV);
    size_t freed = 0;
    pthread_mutex_lock(&cache->lock);
    for (; freed < bytes && cache->count > 0; freed += BLOCK) free(cache->blocks[--cache->count]);
    pthread_mutex_unlock(&cache->lock);
    cache->scans++;
    return freed;
}

static void relieve_cache(void *data) { ((struct cache *)data)->relieved++; }

static weir_callback *add(const char *name, struct cache *cache, unsigned thread, weir_queue *queue) {
    struct weir_shrinker shrinker = {.name = name, .count = count_cache, .scan = scan_cache, .relieved = relieve_cache,
                                     .data = cache, .thread = thread, .queue = queue};
    return p_shrinker_register(&shrinker, sizeof shrinker);
}

static void plain(void) {
    set("relief_ms", 100);
    for (unsigned thread = WEIR_THREAD_SHARED; thread <= WEIR_THREAD_OWN; thread++) {
        static struct cache caches[2];
        struct cache *cache = &caches[thread];
        fill_cache(cache, 10000);
        weir_callback *callback = add("blocks", cache, thread, NULL);
        CHECK(callback);
        limit(1 << 20);
        WAIT_FOR(cache->scans > 0 && count_cache(cache) < 10000 * BLOCK);
        limit(0);
        WAIT_FOR(cache->relieved > 0);
        CHECK(cache->blocked && cache->tid != getpid());
        struct weir_callback_stats stats;
        CHECK(p_callback_stats(callback, &stats, sizeof stats) == 0);
        CHECK(stats.calls > 0 && stats.freed_bytes > 0 && !stats.is_disabled);
        /* A trim leaves caches alone. */
        WAIT_FOR(p_callback_stats(callback, &stats, sizeof stats) == 0 && !stats.is_late);
        int scans = cache->scans;
        size_t left = count_cache(cache);
        p_trim();
        malloc_trim(0);
        CHECK(cache->scans == scans && count_cache(cache) == left);
        CHECK(p_unregister(callback) == 0);
    }
    CHECK(p_unregister(NULL) == 0);
}

/* One that blocks until it is let go is named; another one is called all the same. */
static volatile int is_stuck, let_go;
static size_t stuck_count(void *data) { return 100 << 20; }
static size_t stuck_scan(size_t bytes, int reason, void *data) {
    is_stuck = 1;
    WAIT_FOR(let_go);
    return WEIR_SCAN_STOP;
}

static void stuck(void) {
    struct weir_shrinker shrinker = {.name = "never returns", .count = stuck_count, .scan = stuck_scan};
    weir_callback *slow = p_shrinker_register(&shrinker, sizeof shrinker);
    CHECK(slow);
    static struct cache cache;
    fill_cache(&cache, 10000);
    weir_callback *other = add("beside", &cache, WEIR_THREAD_SHARED, NULL);
    int message[2], error = dup(2);
    CHECK(pipe(message) == 0 && dup2(message[1], 2) == 2);
    limit(1 << 20);
    WAIT_FOR(is_stuck);
    struct weir_callback_stats stats;
    CHECK(p_callback_stats(slow, &stats, sizeof stats) == 0);
    unsigned long long calls = stats.calls;
    WAIT_FOR(cache.scans > 0);
    char text[512] = {0};
    CHECK(poll(&(struct pollfd){.fd = message[0], .events = POLLIN}, 1, PATIENCE * 1000) == 1);
    CHECK(read(message[0], text, sizeof text - 1) > 0);
    CHECK(dup2(error, 2) == 2);
    CHECK(strstr(text, "never returns") && strstr(text, "others are called meanwhile; give it a thread of its own"));
    CHECK(p_callback_stats(slow, &stats, sizeof stats) == 0 && stats.is_late && stats.calls == calls);
    int scans = cache.scans;
    WAIT_FOR(cache.scans > scans || count_cache(&cache) == 0); /* it goes on so */
    limit(0);
    let_go = 1;
    CHECK(p_unregister(slow) == 0 && p_unregister(other) == 0);
}

/* One that has a thread of its own, which alone could say so, is named. */
static void stuck_alone(void) {
    struct weir_shrinker shrinker = {.name = "never returns", .count = stuck_count, .scan = stuck_scan,
                                     .thread = WEIR_THREAD_OWN};
    weir_callback *slow = p_shrinker_register(&shrinker, sizeof shrinker);
    int message[2], error = dup(2);
    CHECK(slow && pipe(message) == 0 && dup2(message[1], 2) == 2);
    limit(1 << 20);
    WAIT_FOR(is_stuck);
    char text[512] = {0};
    CHECK(poll(&(struct pollfd){.fd = message[0], .events = POLLIN}, 1, PATIENCE * 1000) == 1);
    CHECK(read(message[0], text, sizeof text - 1) > 0 && dup2(error, 2) == 2);
    CHECK(strstr(text, "never returns") && strstr(text, "has not returned") && !strstr(text, "thread of its own"));
    limit(0);
    let_go = 1;
    CHECK(p_unregister(slow) == 0);
}

/* One unregisters itself. */
static volatile int was_gone;
static size_t self_scan(size_t bytes, int reason, void *data) {
    struct cache *cache = data;
    CHECK(!was_gone);
    while (!cache->callback) usleep(100);
    CHECK(p_unregister(cache->callback) == 0);
    was_gone = 1;
    return bytes;
}

static void self(void) {
    for (unsigned thread = WEIR_THREAD_SHARED; thread <= WEIR_THREAD_OWN; thread++) {
        static struct cache caches[2];
        struct cache *cache = &caches[thread];
        fill_cache(cache, 10000);
        was_gone = 0;
        struct weir_shrinker shrinker = {.name = "self", .count = count_cache, .scan = self_scan, .data = cache,
                                         .thread = thread};
        cache->callback = p_shrinker_register(&shrinker, sizeof shrinker);
        CHECK(cache->callback);
        limit(1 << 20);
        WAIT_FOR(was_gone);
        static struct cache others[2];
        fill_cache(&others[thread], 10000);
        weir_callback *other = add("after", &others[thread], thread, NULL);
        WAIT_FOR(others[thread].scans > 0); /* threads and queue are whole */
        limit(0);
        CHECK(p_unregister(other) == 0);
    }
}

/* One asks for its figures while another thread unregisters it, and waits for it. */
static volatile int unregisters, has_asked;
static size_t ask_scan(size_t bytes, int reason, void *data) {
    struct cache *cache = data;
    cache->scans++;
    WAIT_FOR(unregisters);
    usleep(50000);
    struct weir_callback_stats stats = {0};
    CHECK(p_callback_stats(cache->callback, &stats, sizeof stats) == 0 && stats.calls > 0);
    has_asked = 1;
    return WEIR_SCAN_STOP;
}

static void asking(void) {
    static struct cache cache;
    fill_cache(&cache, 10000);
    struct weir_shrinker shrinker = {.name = "asking", .count = count_cache, .scan = ask_scan, .data = &cache};
    cache.callback = p_shrinker_register(&shrinker, sizeof shrinker);
    CHECK(cache.callback);
    limit(1 << 20);
    WAIT_FOR(cache.scans > 0);
    unregisters = 1;
    CHECK(p_unregister(cache.callback) == 0 && has_asked);
    limit(0);
}

/* The program's own thread serves: by waiting, and by a descriptor. */
static void queue(void) {
    weir_queue *queue = p_queue_create();
    CHECK(queue);
    CHECK(p_queue_serve(queue, 0) == 0 && p_queue_serve(queue, 10) == 0);
    static struct cache cache;
    fill_cache(&cache, 20000);
    weir_callback *callback = add("here", &cache, WEIR_THREAD_QUEUE, queue);
    CHECK(callback);
    limit(1 << 20);
    CHECK(p_queue_serve(queue, -1) >= 1);
    /* The first priorities may ask for less than a batch. */
    WAIT_FOR((p_queue_serve(queue, 0), cache.scans > 0));
    CHECK(cache.tid == getpid());
    int fd = p_queue_fd(queue);
    CHECK(fd >= 0 && fd == p_queue_fd(queue));
    for (int round = 0; round < 3; round++) {
        int scans = cache.scans;
        CHECK(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, PATIENCE * 1000) == 1);
        p_queue_serve(queue, 0);
        if (round == 2) WAIT_FOR((p_queue_serve(queue, 0), cache.scans > scans) || count_cache(&cache) == 0);
    }
    limit(0);
    CHECK(p_unregister(callback) == 0);
    /* Of a program that closed all its descriptors another file may have the number. */
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && dup2(pair[0], fd) == fd && close(pair[0]) == 0);
    CHECK(write(pair[1], "text", 4) == 4 && p_queue_serve(queue, 0) >= 0);
    p_queue_destroy(queue);
    char text[4];
    CHECK(recv(fd, text, 4, MSG_DONTWAIT) == 4 && memcmp(text, "text", 4) == 0 && close(fd) == 0 && close(pair[1]) == 0);
    p_queue_destroy(NULL);
    errno = 0;
    CHECK(p_queue_serve(NULL, 0) == -1 && errno == EINVAL);
}

/* A queue that one of its callbacks destroys, and one that is destroyed while a thread waits for a callback. */
static weir_queue *ended;
static int ending_calls;
static size_t count_ending(void *data) { return data ? 1 << 30 : 0; }
static size_t end_queue(size_t bytes, int reason, void *data) {
    (void)bytes, (void)reason;
    ending_calls++;
    if (ended) p_queue_destroy(ended), ended = NULL;
    return p_unregister(*(weir_callback **)data) == 0 ? WEIR_SCAN_STOP : 0;
}

static volatile int waiter;
static void *wait_in(void *queue) {
    waiter = (int)syscall(SYS_gettid);
    return (void *)(intptr_t)p_queue_serve(queue, -1);
}

static void destroyed(void) {
    static weir_callback *callbacks[2];
    weir_queue *queue = ended = p_queue_create();
    for (int i = 0; i < 2; i++) {
        struct weir_shrinker shrinker = {.count = count_ending, .scan = end_queue, .data = &callbacks[i],
                                         .thread = WEIR_THREAD_QUEUE, .queue = queue};
        CHECK(callbacks[i] = p_shrinker_register(&shrinker, sizeof shrinker));
    }
    limit(1 << 20);
    WAIT_FOR((ended && p_queue_serve(queue, 0), !ended));
    limit(0);
    CHECK(ending_calls == 1);
    queue = p_queue_create();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_in, queue) == 0);
    char state[64] = "";
    WAIT_FOR(waiter && (status(waiter, "State:", state, sizeof state), strstr(state, "S (")));
    p_queue_destroy(queue);
    void *calls;
    struct timespec until;
    CHECK(clock_gettime(CLOCK_REALTIME, &until) == 0);
    until.tv_sec += PATIENCE;
    CHECK(pthread_timedjoin_np(thread, &calls, &until) == 0 && calls == NULL);
}

/* Pressure, and one relief after it. */
static struct weir_pressure_event heard[4096];
static volatile int heard_count;
static void hear(const struct weir_pressure_event *event, void *data) {
    CHECK(data == heard);
    if (heard_count < 4096) heard[heard_count] = *event;
    __atomic_add_fetch(&heard_count, 1, __ATOMIC_RELEASE);
}

static void pressure(void) {
    static struct cache cache;
    fill_cache(&cache, 5000);
    struct weir_pressure_event latest, event;
    CHECK(p_pressure_latest(&latest, sizeof latest) == 0 && latest.level == WEIR_PRESSURE_NONE);
    weir_callback *subscription = p_pressure_subscribe(WEIR_PRESSURE_SOME, hear, heard, NULL), *writer;
    CHECK(subscription);
    int fd = p_pressure_fd(WEIR_PRESSURE_SOME, &writer);
    CHECK(fd >= 0 && poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 0);
    limit(1 << 20);
    WAIT_FOR(heard_count > 0);
    CHECK(heard[0].level >= WEIR_PRESSURE_SOME && heard[0].cause == 2 && heard[0].generation > 0);
    CHECK(read(fd, &event, sizeof event) == sizeof event && event.level >= WEIR_PRESSURE_SOME && event.cause == 2);
    limit(0);
    do CHECK(read(fd, &event, sizeof event) == sizeof event);
    while (event.level != WEIR_PRESSURE_NONE);
    CHECK(p_pressure_latest(&latest, sizeof latest) == 0);
    CHECK(latest.level == WEIR_PRESSURE_NONE && latest.generation == event.generation);
    WAIT_FOR(heard[heard_count - 1].level == WEIR_PRESSURE_NONE);
    /* Nothing comes after it; what came later than this would not be found here, and nothing else changes. */
    usleep(50000);
    int relieved = 0;
    for (int i = 0; i < heard_count; i++) relieved += heard[i].level == WEIR_PRESSURE_NONE;
    CHECK(relieved == 1 && poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 0);
    CHECK(p_unregister(writer) == 0);
    CHECK(read(fd, &event, sizeof event) == 0); /* Weir's side is closed */
    close(fd);
    CHECK(p_unregister(subscription) == 0);
}

/* A cache may grow as long as there is room below the limit. What this thread takes counts at once, whatever other threads do. */
static void growth(void) {
    static struct cache cache;
    fill_cache(&cache, 5000);
    weir_callback *callback = add("blocks", &cache, WEIR_THREAD_SHARED, NULL);
    CHECK(callback);
    WAIT_FOR(p_may_grow(1 << 20));
    limit(resident() + (64 << 20));
    WAIT_FOR(!p_may_grow(256 << 20));
    CHECK(p_may_grow(1 << 20) && !p_may_grow(SIZE_MAX));
    enum { SOME = 10 };
    void *blocks[SOME];
    for (int i = 0; i < SOME; i++) {
        CHECK(blocks[i] = malloc(4 << 20));
        memset(blocks[i], 1, 4 << 20);
    }
    CHECK(!p_may_grow(40 << 20));
    for (int i = 0; i < SOME; i++) free(blocks[i]);
    limit(0);
    WAIT_FOR(p_may_grow(256 << 20));
    CHECK(p_unregister(callback) == 0);
}

/* A child has none of the threads, and makes them when it wants to. */
static void forked(void) {
    static struct cache cache;
    fill_cache(&cache, 10000);
    weir_callback *shared = add("shared", &cache, WEIR_THREAD_SHARED, NULL);
    static struct cache own_cache;
    fill_cache(&own_cache, 10000);
    weir_callback *own = add("own", &own_cache, WEIR_THREAD_OWN, NULL);
    CHECK(shared && own);
    for (int resumes = 0; resumes < 2; resumes++) {
        pid_t child = fork();
        if (child == 0) {
            if (resumes) {
                p_resume_after_fork();
                limit(1 << 20);
                WAIT_FOR(cache.scans > 0 && own_cache.scans > 0);
                limit(0);
            }
            CHECK(p_unregister(shared) == 0 && p_unregister(own) == 0);
            _exit(0);
        }
        CHECK(ends_well(child));
    }
    limit(1 << 20);
    WAIT_FOR(cache.scans > 0 && own_cache.scans > 0);
    limit(0);
    CHECK(p_unregister(shared) == 0 && p_unregister(own) == 0);
}

static int never(size_t bytes) { return 0; }

static void refused(void) {
    struct weir_shrinker none = {.name = "none"}, odd = {.count = count_cache, .scan = scan_cache, .thread = 7};
    struct weir_shrinker queueless = {.count = count_cache, .scan = scan_cache, .thread = WEIR_THREAD_QUEUE};
    const struct weir_shrinker *wrong[] = {NULL, &none, &odd, &queueless};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        errno = 0;
        CHECK(!p_shrinker_register(wrong[i], sizeof none) && errno == EINVAL);
    }
    errno = 0;
    CHECK(!p_pressure_subscribe(0, hear, NULL, NULL) && errno == EINVAL);
    CHECK(p_pressure_fd(3, NULL) == -1 && p_pressure_latest(NULL, 16) == -1 && p_queue_fd(NULL) == -1);
    CHECK(p_on_limit(never) == NULL && p_on_limit(NULL) == never);
}

int main(int argc, char **argv) {
    if (!is_weir()) skip_all("it is of Weir's own");
    CHECK(argc == 2);
    ignore_stalls();
#define RUN(name) if (strcmp(argv[1], #name) == 0) return name(), 0
    RUN(plain);
    RUN(stuck);
    RUN(stuck_alone);
    RUN(self);
    RUN(asking);
    RUN(queue);
    RUN(destroyed);
    RUN(pressure);
    RUN(growth);
    RUN(forked);
    RUN(refused);
    return 2;
}
