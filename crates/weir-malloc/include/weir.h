/*
 * weir.h: what a C or C++ program can ask of Weir beyond malloc.
 *
 * Link with -lweir, or run under `LD_PRELOAD=libweir.so.0` and look the names up with dlsym(). In either case malloc,
 * free and C++'s new and delete are Weir's, and nothing here is needed to use them.
 *
 * All functions may be called from any thread at any time, but not from signal handlers.
 *
 * Sizes, lengths, offsets and figures are bytes, unless a name or a comment says otherwise.
 *
 * Errors: a function that returns a value says -1, NULL or 0 and sets errno. EINVAL means that an argument cannot be:
 * a NULL cache or zone, a size of zero, an alignment that is no power of two.
 *
 * Some functions can return nothing. Some errors leave the program's memory unsound: a double free, an object given to
 * another cache, a cache that is destroyed already. In both cases a line on standard error names the function, the
 * address and what to do, and the process is aborted. With the setting abort_on_misuse at 0 the line is printed and the
 * call ignored.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stddef.h>
#include <stdint.h>

#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0
#define WEIR_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that is loaded, in the form of WEIR_VERSION, which is that of this header. */
const char *weir_version(void);

/*
 * Releases everything idle to the operating system now, whatever the pressure: caches down to nothing, free blocks,
 * free pages. Weir does this by itself when memory is short; calling it is for a program that is about to be idle for
 * long. `weir ctl PID drain` does it from outside. Returns 1 if anything was released, 0 if nothing was idle.
 */
int weir_trim(void);

/*
 * ---- Blocks that a program moves by itself ----
 *
 * After a peak nearly every page may have a few blocks left, and none of them can be released. A program that can change all
 * its references to a block copies such blocks together. Where weir_should_move() says 1, it
 *   - takes the place that weir_alloc_to_move() gives it, unless that is NULL,
 *   - copies malloc_usable_size() bytes, and makes each reference to the block one to the copy,
 *   - and gives the old block to weir_free_moved().
 *
 * The call weir_should_move() returns 1 if malloc's block at `block` lies on pages that would be free without few blocks. Else
 * it returns 0. It returns 0 as well
 *   - for a pointer to no block (for a block that was freed the answer means nothing);
 *   - for blocks of a page or more;
 *   - as long as less than an eighth of what has memory is free in the blocks' size class.
 * The answer changes with each allocation and free. A program that goes over its blocks copies few of them twice, and comes to
 * an end. The second or third time none should move, while it frees nothing else.
 *
 * The call weir_alloc_to_move() returns a block of the same usable size and alignment on pages with more blocks. It returns NULL
 * where the block should stay; errno is left alone. The call weir_free_moved() is free(), but the next malloc() does not get the
 * place. No other thread may free the block from the question on until then. To free it twice is as wrong as ever, and seldom
 * named (WEIR_CHECK=1 does).
 */
int weir_should_move(const void *block);
void *weir_alloc_to_move(const void *block);
void weir_free_moved(void *block);

/*
 * Where the memory is. The figures are gathered while other threads go on: they are exact as long as nothing is
 * allocated or freed.
 *
 * What is resident of Weir is live + idle + fragmented + merged + metadata - untouched; merged is not charged. The
 * rest of the process's resident set is not Weir's: code and data, stacks, other mappings, and the program's own zones
 * (struct weir_zone_usage).
 */
struct weir_usage {
    size_t live_bytes;          /* blocks and objects that the program holds, at their usable sizes */
    size_t idle_bytes;          /* free and resident, and can be released: what weir_trim() could release */
    size_t address_space_bytes; /* that the heap has grown to, outside the mappings below, resident or not */
    size_t mapped_bytes;        /* of live: in blocks so large that each has a mapping of its own */
    size_t mapped_count;        /* how many those are */
    size_t metadata_bytes;      /* Weir's own, resident */
    size_t fragmented_bytes;    /* free and resident, but objects in use are on the same pages: cannot be released */
    size_t untouched_bytes;     /* of live (or in a CPU's bucket): not resident, never touched or swapped out */
    size_t merged_bytes;        /* as fragmented, but without memory of its own: the kernel merged its page with others */
};

/*
 * Fills *usage. That takes a few microseconds for each 2 MiB of the heap, as the kernel is asked what is resident.
 * `size` is sizeof(struct weir_usage) as the caller was compiled with it. The structure may grow at its end, and fields
 * that the library does not have are set to zero. Returns 0; or -1 with errno EINVAL if usage is NULL or size is 0.
 */
int weir_usage(struct weir_usage *usage, size_t size);

/*
 * ---- Settings and figures by name ----
 *
 * The shape is that of jemalloc's mallctl(): reads and writes one value, and returns an error number, 0 for success
 * (errno is left alone). Every value is a uint64_t.
 *
 *   "limit", "idle_ms", ...                 the settings: `weir settings` and docs/SETTINGS.md list names, units, ranges
 *   "stats.live_bytes", "stats.idle_bytes", "stats.fragmented_bytes", "stats.metadata_bytes",
 *   "stats.untouched_bytes", "stats.mapped_bytes", "stats.mapped_count", "stats.address_space_bytes",
 *   "stats.merged_bytes"
 *                                           the fields of struct weir_usage; they can only be read
 *   "stats.resident_bytes"                  live + idle + fragmented + merged + metadata - untouched
 *
 * Read: `oldp` is room for the value and *oldlenp its size, 8. Either or both may be NULL if nothing is to be read;
 * where `oldlenp` is given, the value's size is stored there. Write: `newp` is the value and `newlen` its size, 8;
 * NULL and 0 if nothing is to be written. Given both, the old value is read before the new one counts, from the next
 * decision on. Writing 0 to "report" waits until the release in flight has ended; there is no other until 1 is
 * written.
 *
 * Returns ENOENT for a name that is not there; EINVAL for a NULL name, a size that is not 8, or a pointer without its
 * size; EPERM for a write of a figure; ERANGE for a value outside the setting's range. Then nothing was written,
 * neither to the setting nor to *oldp.
 *
 *     uint64_t limit = (uint64_t)512 << 20, before, idle;
 *     size_t size = sizeof before;
 *     if (weir_ctl("limit", &before, &size, &limit, sizeof limit) != 0) ...
 *     if (weir_ctl("stats.idle_bytes", &idle, &size, NULL, 0) != 0) ...
 */
int weir_ctl(const char *name, void *oldp, size_t *oldlenp, const void *newp, size_t newlen);

/*
 * ---- Object caches ----
 *
 * A cache hands out objects of one size. It keeps free objects that are likely to be wanted again. When memory is
 * short it releases the rest, first what has lain idle for longest; objects in use are never touched. An object may be
 * freed by any thread on any CPU at the cost of a local free. There is no limit to set: caches grow with demand.
 *
 * What happens to an object, in this order:
 *
 *   init   when its slab (a few pages of objects) is made, for all objects of that; 0, or another value: it failed, and so
 *          does the allocation
 *   ctor   at each allocation; 0, or another value: it failed, and so does the allocation
 *   dtor   at each free
 *   fini   before its slab is released: on a thread of the library's own ("weir-fini"), in weir_trim() or in
 *          weir_cache_destroy(). Where init failed, at once for those objects of the slab for which it had not: in the
 *          allocation, or in weir_cache_set_reserve(). Never inside another allocation or free, nor in malloc_trim()
 *
 * A slab has 8 objects or more of up to 4 KiB: with an init 128 of 32 bytes, for example, and 1024 of 16. The first allocation
 * calls init for all of them, and all or none are kept. A limit does not bound them.
 *
 * With an init or a fini, an object keeps its contents while it is free: what init built is still there at the next
 * ctor. Each may be NULL. They may allocate, also from other caches, but not from their own. They may not destroy their
 * own cache: weir_cache_destroy() would wait for the call that it is in. A C++ exception that leaves one of them is named,
 * and the process is aborted, whatever abort_on_misuse says: an object would be left half made. They may not be left by
 * longjmp() or pthread_exit() either. A thread that is cancelled (pthread_cancel()) in init or fini ends after it. In ctor or dtor
 * it ends at once: the object is lost, and counts as in use.
 *
 * To call free() with an object is the same as weir_cache_free() for a cache without a dtor and without
 * WEIR_CACHE_LIMITED. For the others it is an error, as free() calls no dtor and counts nothing back. The error is found,
 * and named, when the object is to be handed out again or finalized. To call realloc() with an object is always an error,
 * found at once.
 *
 * The check of free() takes 8 bytes behind each object. Because of the alignment that may cost more than an eighth of an
 * object. Caches of such objects are not checked if an object has more than 64 bytes.
 */
typedef struct weir_cache weir_cache;

typedef int weir_cache_init(void *object, size_t size);
typedef void weir_cache_fini(void *object, size_t size);
typedef int weir_cache_ctor(void *object, size_t size, void *argument);
typedef void weir_cache_dtor(void *object, size_t size, void *argument);
typedef int weir_cache_move(void *from, void *to, size_t size, void *argument);

#define WEIR_CACHE_ZERO 1u       /* objects are zero when they are handed out, before ctor */
#define WEIR_CACHE_NO_RECLAIM 2u /* no pressure takes anything from this cache */
#define WEIR_CACHE_LIMITED 4u    /* it can be limited: each call then costs an atomic addition */
#define WEIR_CACHE_NO_MERGE 8u   /* its objects hold secrets: none is copied to merge pages (setting "merge") */

/* Largest size of an object; the smallest is 1. */
#define WEIR_CACHE_MAX_OBJECT 131072u
#define WEIR_CACHE_NO_LIMIT ((size_t)-1)

/*
 * Makes a cache. `name` is for statistics (31 bytes of it are kept); `align` is a power of two up to 4096, or 0 for
 * any; `size` is 1 to WEIR_CACHE_MAX_OBJECT. Returns NULL with errno EINVAL for a size, alignment or flag that cannot
 * be, ENOMEM when there is no memory. There may be any number of caches; the first 119 have per-CPU buckets, calls to the
 * others take a lock.
 */
weir_cache *weir_cache_create(const char *name, size_t size, size_t align, weir_cache_ctor *ctor,
                              weir_cache_dtor *dtor, weir_cache_init *init, weir_cache_fini *fini, unsigned flags);

/*
 * Destroys a cache, calling fini for all objects. No thread may use it meanwhile. Returns 0; or -1 with errno EBUSY if
 * objects are still in use: then the cache is as it was. NULL is allowed, and does nothing. A cache that was destroyed
 * already is named, and the process aborted, as far as that can be seen.
 */
int weir_cache_destroy(weir_cache *cache);

/*
 * An object, or NULL with errno ENOMEM (no memory, the limit is reached, or ctor or init failed) or EINVAL (the cache
 * is NULL). The second form passes `argument` to ctor, the first one NULL.
 */
void *weir_cache_alloc(weir_cache *cache);
void *weir_cache_alloc_arg(weir_cache *cache, void *argument);

/*
 * Frees an object of this cache; a NULL object is allowed, and does nothing. The process is aborted with a message for
 * an object of another cache and for a NULL cache. So it is for a double free, as far as that is seen. Caches with a dtor
 * or a limit see it at once, before dtor is called. Others see it when the object is to be handed out again or goes back
 * to its slab. In caches with a dtor or a limit a write past the end of the object is found too.
 */
void weir_cache_free(weir_cache *cache, void *object);
void weir_cache_free_arg(weir_cache *cache, void *object, void *argument);

/*
 * Fills `objects` with up to `count`; returns how many, with errno ENOMEM if fewer, or EINVAL if the cache or
 * `objects` is NULL. A count of 0 does nothing. Cheaper than one by one.
 */
size_t weir_cache_alloc_batch(weir_cache *cache, void **objects, size_t count);

/*
 * Frees `count` objects of this cache; their places in `objects` are left alone. None of them may be NULL: that, a NULL
 * array, and all that weir_cache_free() names abort the process with a message. A count of 0 does nothing.
 */
void weir_cache_free_batch(weir_cache *cache, void *const *objects, size_t count);

/*
 * At most `objects` may be in use at a time. For caches made with WEIR_CACHE_LIMITED, which begin without a limit.
 * Returns 0; or -1 with errno EINVAL for other caches, and for NULL.
 */
int weir_cache_set_limit(weir_cache *cache, size_t objects);

/*
 * Leaves that many free objects, made at once, to the cache in every reclaim. Returns 0; or -1 with errno ENOMEM if
 * there is no memory for all of them: then the reserve stays what it was. What exceeds the room below the tightest limit
 * is refused at once. EINVAL: the cache is NULL.
 */
int weir_cache_set_reserve(weir_cache *cache, size_t objects);

/*
 * Lets Weir move objects, once for a cache. After a peak of which a few objects are left at random, nearly every page has one
 * of them. Then Weir asks, object by object, until the others fit on few pages: `move` gets an object, a free place of the same
 * size, and `argument`.
 *
 *   1  The program has copied the object to `to`, and changed all references to it. From now on `to` is the object, and Weir
 *      frees `from`. Neither ctor nor dtor is called.
 *   0  The object stays, and `to` is not used. Objects beside it are not asked again until something changes there.
 *
 * `from` may be no object that is in use: it may lie free in a bucket, or the program may free it right now. So `move` looks it
 * up in a table of the program's, under the program's own lock, before it reads it. What it does not find it refuses.
 *
 *     int move(void *from, void *to, size_t size, void *table) {
 *         lock(table);
 *         void **place = find(table, from);
 *         if (place != NULL) *place = memcpy(to, from, size);
 *         unlock(table);
 *         return place != NULL;
 *     }
 *
 * One thread ("weir-fini") calls it, beside any allocation or free, and holds no lock of Weir's. It may allocate and free, from
 * this cache too. It may not destroy the cache. weir_cache_destroy() waits for a call that is running, so no lock that `move`
 * takes may be held there. In a forked child nothing is moved before a call on such a cache has gone past its CPU's bucket. A C++
 * exception that leaves `move` ends the process.
 *
 * Returns 0; or -1 with errno EINVAL if cache or move is NULL, for a second call, and for a cache with an init or a fini: their
 * objects have something built in while they are free. Objects of 4096 bytes and more are not moved.
 */
int weir_cache_set_move(weir_cache *cache, weir_cache_move *move, void *argument);

/* One cache's figures, in objects unless said otherwise. They are read one after another while others go on. */
struct weir_cache_stats {
    char name[32];        /* malloc's size classes are "malloc " and their size */
    size_t number;        /* 1 to 77: malloc's; 78 to 133: its runs; higher: made by weir_cache_create */
    size_t size;          /* bytes that an object takes, its alignment and the check of free() included */
    size_t limit;         /* in use at a time; WEIR_CACHE_NO_LIMIT: any number */
    size_t reserve;
    size_t used;          /* in use */
    size_t free_cpu;      /* free in CPUs' buckets, */
    size_t free_depot;    /* in full buckets, */
    size_t free_slab;     /* in slabs */
    size_t slab_bytes;    /* bytes of its slabs */
    size_t requests;      /* allocations that succeeded (interrupted frees count twice) */
    size_t failures;      /* allocations that failed */
    size_t visits;        /* allocations and frees that the CPU's bucket could not serve */
    size_t misses;        /* allocations that no bucket could serve */
    size_t crossed;       /* freed on another CPU than allocated on: the net flow */
    size_t bucket;        /* size of a CPU's bucket now, */
    size_t bucket_min;    /* at least, */
    size_t bucket_max;    /* at most */
    size_t working_set;   /* of free_depot: what is expected to be wanted again */
    size_t stale_ms;      /* milliseconds since an allocation last found no bucket */
    size_t trims;         /* times that something was taken from the depot, */
    size_t trimmed_bytes; /* and bytes taken */
    size_t drains;        /* times that something was taken from CPUs' buckets, */
    size_t drained_bytes; /* and bytes taken */
};

/*
 * Fills *stats with the figures of `cache`. `size` is sizeof(struct weir_cache_stats), as with weir_usage().
 * Returns 0; or -1 with errno EINVAL if cache or stats is NULL or size is 0.
 */
int weir_cache_stats(weir_cache *cache, struct weir_cache_stats *stats, size_t size);

/*
 * Fills *stats with the figures of the first cache whose number is above stats->number, malloc's size classes among
 * them: begin with 0. Returns 1; 0 if there is none; -1 as weir_cache_stats().
 */
int weir_cache_next(struct weir_cache_stats *stats, size_t size);

/*
 * Switches the release of free memory on (1, as at the start) or off (0): the setting "report". When this returns after
 * switching off, the release in flight has ended and there is no other. That is for a program that is about to pin memory
 * for a device.
 */
void weir_set_reporting(int on);

/*
 * ---- Zones ----
 *
 * Memory of a kind that malloc does not give, handed out in runs of pages of up to 4 MiB. Free pages of a zone are
 * released under pressure as the heap's are, in the way of the memory that they are.
 */
typedef struct weir_zone weir_zone;

#define WEIR_ZONE_ANONYMOUS 0u /* private memory */
#define WEIR_ZONE_MEMFD 1u     /* of a memfd or a file on tmpfs or hugetlbfs, which gets holes where it is free */
#define WEIR_ZONE_HUGETLB 2u   /* huge pages of 2 MiB from the system's pool (Linux 5.14); they are released whole (5.18) */
#define WEIR_ZONE_LOCKED 3u    /* locked in memory: what is free stays resident */

/*
 * Makes a zone of `length` bytes, a multiple of 2 MiB; `fd` counts for WEIR_ZONE_MEMFD only, is at least that long, and
 * may be closed afterwards. Returns NULL with errno EINVAL for a length or kind that cannot be, or the kernel's errno.
 *
 * In a forked child a zone of WEIR_ZONE_MEMFD is the parent's: nothing can be allocated from it there. So is one of
 * WEIR_ZONE_HUGETLB, and its memory is not there: a touch of it is a fault. An evictable cache in such a zone is empty there.
 * Pins of the parent's may be released and prepared entries cancelled there, which changes nothing; to publish one is ENOMEM.
 * Key and value of such an entry may be looked at only as long as the parent pins it, and in WEIR_ZONE_HUGETLB not at all.
 * A zone of WEIR_ZONE_LOCKED is there, but not locked (mlock(2)).
 */
weir_zone *weir_zone_create(unsigned kind, size_t length, int fd);

/*
 * Destroys a zone and unmaps its memory. Returns 0; or -1 with errno EBUSY if pages are in use: then the zone is as it
 * was. In a forked child a zone of the parent's is destroyed whatever is in use, and stays the parent's. NULL is allowed,
 * and does nothing. A zone that was destroyed already is named, and the process aborted, as far as that can be seen.
 */
int weir_zone_destroy(weir_zone *zone);

/*
 * Allocates a run of whole pages for `size` bytes (1 to 4 MiB), aligned to `align`. That is a power of two up to
 * 4 MiB, or 0 for a page's. Their contents are undefined. Returns NULL with errno ENOMEM if there are none, or no memory is
 * behind them: the pool of huge pages is used up, or the file system full (before Linux 5.14 the first touch of a file's pages
 * is SIGBUS then). EINVAL for a size or alignment that cannot be, and for a NULL zone. Near a limit it first evicts from caches,
 * as malloc() does, and may wait for some seconds: hold no lock that a callback of theirs takes.
 */
void *weir_zone_alloc(weir_zone *zone, size_t size, size_t align);

/*
 * Allocates as weir_zone_alloc() does, for a caller that can use other memory as well: the zone is the first of a list, and the
 * heap the next. Returns NULL with errno ENOMEM where less than the zone's low mark (some 5 to 10 % of it) would be left.
 * Then the caller uses malloc(). While memory is short on the heap too the limit is the zone's min, and caches in both are
 * made smaller. EINVAL for a size that cannot be, and for a NULL zone.
 */
void *weir_zone_alloc_first(weir_zone *zone, size_t size);

/*
 * Frees a run of pages: what weir_zone_alloc() or weir_zone_alloc_first() returned, with the size that it was asked for. Returns 0; or -1 with
 * errno EINVAL, and nothing done, if this is no such run. Then it is not the zone's, or free already, or the size is
 * another (a part of a run cannot be freed). NULL pages are allowed, and do nothing.
 */
int weir_zone_free(weir_zone *zone, void *pages, size_t size);

/*
 * Takes `length` bytes from `offset`, both multiples of 2 MiB, out of use, for the memory to be unplugged; and back
 * into use. Returns 0; or -1 with errno EBUSY if pages there are in use (then all stays as it was). The errno is EINVAL
 * if the range is empty, not all in the zone or not in whole 2 MiB, and for a NULL zone.
 */
int weir_zone_offline(weir_zone *zone, size_t offset, size_t length);
int weir_zone_online(weir_zone *zone, size_t offset, size_t length);

/* The zone's first byte; NULL with errno EINVAL for a NULL zone. */
void *weir_zone_base(weir_zone *zone);

/* Memory of a zone, in bytes. */
struct weir_zone_usage {
    size_t bytes;         /* in all */
    size_t used_bytes;    /* handed out */
    size_t idle_bytes;    /* free and resident */
    size_t offline_bytes; /* out of use */
    size_t is_reported;   /* 1 if free pages are released; 0 if they are locked, or the kernel refused it */
};

/* Fills *usage; `size` is sizeof(struct weir_zone_usage), as with weir_usage(). Returns 0; or -1 with errno EINVAL. */
int weir_zone_usage(weir_zone *zone, struct weir_zone_usage *usage, size_t size);

/*
 * ---- Page pools ----
 *
 * Pages for the I/O of a device or a queue: one pool for each. Between requests a pool keeps pages, so that the next
 * request finds them resident. It starts from zero and grows on demand. Idle pages go back
 *   - to max_idle_pages, when the last run in flight was put back, and 100 ms after the pool came to have more;
 *   - all of them, while a squeeze window is open: for squeeze_ms after the last event of memory pressure; each extends it;
 *   - all of them, where an allocation would fail otherwise, and by weir_trim().
 * Runs in flight are never touched: only a put makes a run idle, however long its queue is silent.
 *
 * What:         setting max_idle_pages (weir_ctl(), WEIR_MAX_IDLE_PAGES), weir_page_pool_set_max_idle_pages()
 * Since:        0.1.0
 * Contact:      the project's issues
 * Description:  pages of 4 KiB that a pool keeps idle. 0: each request takes its pages anew
 * Range:        0 to 4294967295
 * Default:      1024
 *
 * What:         setting squeeze_ms (weir_ctl(), WEIR_SQUEEZE_MS), weir_page_pool_set_squeeze_ms()
 * Since:        0.1.0
 * Contact:      the project's issues
 * Description:  milliseconds after an event of memory pressure in which a pool keeps nothing idle. Longer: less swap, and
 *               more pages taken anew. 0: pressure does not squeeze
 * Range:        0 to 3600000
 * Default:      10
 *
 * Weir's own thread gives idle pages up, and so does each put in a window. A pool that is WEIR_PAGE_POOL_TENDED has an
 * owner of the program's: an event then frees nothing, but ends weir_page_pool_wait(), and the owner calls
 * weir_page_pool_tend(). In an event loop, weir_pressure_fd() tells when.
 */
typedef struct weir_page_pool weir_page_pool;

#define WEIR_PAGE_POOL_TENDED 1u           /* a thread of the program's is the owner */
#define WEIR_PAGE_POOL_COMMON ((size_t)-1) /* in place of a pool's own setting: the setting of all pools */
#define WEIR_PAGE_POOL_MAX_PAGES 1024      /* pages of the longest run: 4 MiB */

/* Makes a pool. The name is for figures, cut at 32 bytes, or NULL. From now on pressure is listened for. NULL with errno
   ENOMEM, or EINVAL for flags that cannot be. */
weir_page_pool *weir_page_pool_create(const char *name, unsigned flags);

/*
 * Destroys a pool, which no other thread uses any more. A put uses it until it returns, also that of the last run in flight.
 * Returns 0; or -1 with errno EBUSY if runs are in flight: then the pool is as it was. NULL is allowed, and does nothing.
 * A pool that was destroyed already is named, and the process aborted, as far as that can be seen.
 */
int weir_page_pool_destroy(weir_page_pool *pool);

/*
 * Gets a run of at least `pages` pages in a row (1 to 1,024), at most a quarter more. Its first byte is at a multiple of
 * 4,096. Its contents are undefined. Returns NULL with errno ENOMEM, or EINVAL for a length that cannot be, and for a NULL
 * pool. The second form stores `count` of them, as many as can be had, and NULL for the others; it returns how many. A count
 * of 0 does nothing.
 */
void *weir_page_pool_get(weir_page_pool *pool, size_t pages);
size_t weir_page_pool_get_batch(weir_page_pool *pool, size_t pages, void **runs, size_t count);

/*
 * Puts a run back, whole; NULL is allowed. A run that is not in flight from this pool is named, and the process aborted.
 * The second form puts `count` of them back. A count of 0 does nothing.
 */
void weir_page_pool_put(weir_page_pool *pool, void *run);
void weir_page_pool_put_batch(weir_page_pool *pool, void *const *runs, size_t count);

/* Sets a pool's own value, or WEIR_PAGE_POOL_COMMON: the setting's of all pools. Returns 0; or -1 with errno EINVAL. */
int weir_page_pool_set_max_idle_pages(weir_page_pool *pool, size_t pages);
int weir_page_pool_set_squeeze_ms(weir_page_pool *pool, size_t ms);

/*
 * Both calls are for the owner of a pool. The first gives up all that is idle if there was a pressure event since the last
 * call, or the window of one is open. Else it gives up what is above max_idle_pages. Returns the pages given up for
 * pressure.
 *
 * The second sleeps until there is an event that was not tended for, for `timeout_ms` (below 0: for ever). It may return
 * earlier. Returns 0. For a NULL pool the two return 0 and -1, with errno EINVAL.
 */
size_t weir_page_pool_tend(weir_page_pool *pool);
int weir_page_pool_wait(weir_page_pool *pool, int timeout_ms);

/* Figures of a pool. Counts are since it was made. */
struct weir_page_pool_stats {
    size_t idle_pages;                       /* now */
    size_t in_flight_pages;                  /* that the program has now */
    unsigned long long gets;                 /* runs asked for */
    unsigned long long misses;               /* of these: that took new pages, as none of their length was idle */
    unsigned long long squeezes;             /* events of pressure for which idle pages were given up */
    unsigned long long squeezed_pages;       /* how many those were */
    unsigned long long misses_after_squeeze; /* misses that took pages which a squeeze had given up before */
};

/* Fills *stats; `size` is its size, as with weir_usage(). Returns 0; or -1 with errno EINVAL. */
int weir_page_pool_stats(weir_page_pool *pool, struct weir_page_pool_stats *stats, size_t size);

/*
 * ---- Shrinkers and memory pressure ----
 *
 * A program that keeps caches of its own lets Weir make them smaller when memory is short, and hears of pressure and of
 * its end. Memory may be short in the process, its control group or the machine. A callback is called
 *   - on the thread of the program's choice. That is one of Weir's for all (the default), one of Weir's for it alone,
 *     or the program's own, which serves a queue. All signals that can be are blocked on Weir's;
 *   - under no lock of Weir's, never inside an allocation, and never by two threads at once. It may allocate, free,
 *     lock, register and unregister, also itself;
 *   - for as long as it likes. After the setting callback_ms (50) reclaim goes on without it, and others are called by
 *     another thread. After a second it is named on standard error. It is not called again before it has returned.
 * A C++ exception that leaves it is named, and it is not called again. It may not end its thread (pthread_exit(), or
 * longjmp() out of it): what it holds would never be given back. In a callback exit() ends the process as everywhere.
 * A thread of the program's that is cancelled (pthread_cancel()) in it ends after it. The waits of weir_queue_serve() and
 * weir_page_pool_wait() are no cancellation points: end them by weir_queue_destroy(), or by a timeout.
 *
 * In a forked child no thread calls anything, until it registers something, puts something into an evictable cache or calls
 * weir_resume_after_fork(). There is no need to where the child executes a program. File descriptors of below are the
 * parent's there.
 */
typedef struct weir_callback weir_callback; /* something that is registered */
typedef struct weir_queue weir_queue;       /* callbacks that the program's own threads call */

/* Why a shrinker is called. */
#define WEIR_SCAN_MILD 0     /* memory is short elsewhere: what has to be written back first had better stay */
#define WEIR_SCAN_PRESSURE 1 /* memory is short */
#define WEIR_SCAN_SEVERE 2   /* memory is so short that tasks suffer */
#define WEIR_SCAN_SHORTAGE 3 /* the system refused this process memory: an allocation is about to fail */

/* Who calls a callback. */
#define WEIR_THREAD_SHARED 0u /* Weir's thread, one callback after another */
#define WEIR_THREAD_OWN 1u    /* a thread of Weir's for this callback alone */
#define WEIR_THREAD_QUEUE 2u  /* whoever calls weir_queue_serve() for `queue` */

#define WEIR_SEEKS_NONE ((unsigned)-1)  /* objects cost nothing to make again: half of them go at each scan */
#define WEIR_SCAN_STOP ((size_t)-1)     /* what scan() returns where nothing can be freed now */

/*
 * A cache of the program's. Fields that are zero are the defaults; count and scan must be there.
 *
 * How much it is told to free follows Linux: count() >> priority bytes, times 4, divided by seeks, in batches. These are larger
 * where there would be more than 65,536. Pressure from elsewhere scans at the priorities 12 to 10. Where this process's own limit
 * is near, or pressure is severe, scans go on to 1 until enough went. What is less than a batch, or was not done, is deferred: a
 * later scan adds a part of it. The calls weir_trim() and malloc_trim() call no shrinker: they release what is free.
 */
struct weir_shrinker {
    const char *name;           /* for messages; cut at 32 bytes, and copied */
    size_t (*count)(void *data); /* bytes that could be freed now; 0: nothing */
    /* Frees about `bytes`, what was not used for longest first; returns the bytes freed, or WEIR_SCAN_STOP. */
    size_t (*scan)(size_t bytes, int reason, void *data);
    void (*relieved)(void *data); /* pressure has ended: the cache may grow again */
    void *data;
    size_t batch;      /* bytes to free at a time: 64 KiB */
    unsigned seeks;    /* accesses to storage that making an object again costs: 2 */
    unsigned thread;   /* WEIR_THREAD_SHARED */
    weir_queue *queue; /* for WEIR_THREAD_QUEUE */
};

/*
 * Registers a shrinker; `size` is sizeof(struct weir_shrinker). The structure is copied. NULL with errno EINVAL, ENOMEM,
 * or EAGAIN where no thread can be made. Weir's background thread is started to hear of pressure.
 */
weir_callback *weir_shrinker_register(const struct weir_shrinker *shrinker, size_t size);

/*
 * Unregisters a shrinker or a subscription. When this returns, it is not called any more: if another thread is in it,
 * that is waited for. Inside the callback itself this returns at once. So it does where waiting would never end, as two
 * callbacks unregister each other: the other one is then still in its call. A call that is waited for may ask for figures by
 * weir_callback_stats() until it ends. Returns 0; NULL is allowed, and does nothing.
 */
int weir_unregister(weir_callback *callback);

/* Figures of a callback. */
struct weir_callback_stats {
    unsigned long long calls;
    unsigned long long freed_bytes;    /* as it said */
    unsigned long long deferred_bytes; /* left to scan */
    int is_late;     /* it takes longer than callback_ms, or waits for that long to be called */
    int is_disabled; /* it threw an exception */
};

/* Fills *stats; `size` is sizeof(struct weir_callback_stats), as with weir_usage(). Returns 0; or -1, errno EINVAL. */
int weir_callback_stats(weir_callback *callback, struct weir_callback_stats *stats, size_t size);

/* Levels of pressure. */
#define WEIR_PRESSURE_NONE 0u   /* relief: pressure has ended. There is one such event, relief_ms after the last other */
#define WEIR_PRESSURE_SOME 1u   /* somebody waits for memory, or soon will */
#define WEIR_PRESSURE_SEVERE 2u /* tasks suffer for want of memory */

/* An event of memory pressure. */
struct weir_pressure_event {
    unsigned level;
    unsigned cause;      /* 1: pressure from outside; 2: the setting limit */
    unsigned generation; /* number of the event: a gap means that some were missed */
    unsigned reserved;   /* 0 */
};

/*
 * Calls `callback` with each event of `level` or above, and with the relief that follows; `queue` NULL: on Weir's thread.
 * One that is slow hears of the latest event only. NULL with errno EINVAL, ENOMEM or EAGAIN.
 */
typedef void weir_pressure_callback(const struct weir_pressure_event *event, void *data);
weir_callback *weir_pressure_subscribe(unsigned level, weir_pressure_callback *callback, void *data, weir_queue *queue);

/*
 * A file descriptor that is readable when there was an event of `level` or above, or the relief after it:
 *
 *     struct weir_pressure_event event;   // read() is in <unistd.h>
 *     if (read(fd, &event, sizeof event) == sizeof event) ...
 *
 * gives the latest one. It is close-on-exec and blocks. The program closes it, and ends Weir's side by weir_unregister()
 * of what is stored in *callback. Where `callback` is NULL nothing is stored, for a descriptor that stays. Returns -1 with
 * errno EINVAL, ENOMEM, EAGAIN or the kernel's.
 */
int weir_pressure_fd(unsigned level, weir_callback **callback);

/* Fills *event with the latest event; `size` is sizeof(struct weir_pressure_event), as with weir_usage(). From the first
   call on pressure is listened for. Returns 0; or -1 with errno EINVAL. */
int weir_pressure_latest(struct weir_pressure_event *event, size_t size);

/*
 * For a cache of the program's own that has a shrinker: 1 if it may take `bytes` more. Then there is no pressure, nor was any since
 * the last relief, and so much is left below the tightest limit. Else 0: what is inserted first takes the place of as much.
 *
 * The answer is an estimate that follows what this process allocates and releases. So it changes before a thread of Weir's has heard
 * of anything. A block counts for an eighth of the limit at most, until the limit is read again: who allocates it may not touch all.
 * The call costs some loads, and waits for nothing.
 */
int weir_may_grow(size_t bytes);

/*
 * A queue. NULL with errno ENOMEM. It may be destroyed before its callbacks are unregistered: they are not called then. So it may
 * inside one of its callbacks, and while a thread waits in weir_queue_serve(), which returns.
 */
weir_queue *weir_queue_create(void);
void weir_queue_destroy(weir_queue *queue);

/*
 * Calls the callbacks that wait; returns how many. Where none does, it waits for one for `timeout_ms` (0: not at all; below
 * 0: for ever). -1 with errno EINVAL for a NULL queue.
 */
int weir_queue_serve(weir_queue *queue, int timeout_ms);

/* A descriptor to poll: readable while a callback may wait; weir_queue_serve() makes it not readable. The same at each call,
   and closed by weir_queue_destroy(). -1 with errno EINVAL, ENOMEM, EAGAIN or the kernel's. */
int weir_queue_fd(weir_queue *queue);

/*
 * Sets what is called before an allocation of `bytes` fails because of the setting hard_limit; returns what was set before.
 * The callback runs on the thread that allocates, which may hold locks of the program's. It must not wait for any, nor
 * leave by an exception. It may allocate: what does not fit then fails. If it freed something, it returns 1, and the
 * allocation is tried again. If the thread is cancelled meanwhile it ends after it.
 *
 * One thread at a time is in it. An allocation of another thread that is about to fail meanwhile waits until it returns,
 * and is tried again; then it calls the callback itself. If that takes longer than the setting callback_ms, it fails.
 */
typedef int weir_limit_callback(size_t bytes);
weir_limit_callback *weir_on_limit(weir_limit_callback *callback);

/* In a forked child: makes the threads for the callbacks that the parent registered. */
void weir_resume_after_fork(void);

/*
 * ---- Evictable caches ----
 *
 * A cache of byte blocks by key that shares the process's memory with everything else in it. It grows while memory is
 * free, and evicts when memory is short. Keys and values are bytes of any length; a value has its length from its
 * insertion on. What is evicted is chosen by an adaptive policy that resists scans.
 *
 * Entries are pinned by weir_evictable_get() and weir_evictable_publish(), and stay until weir_evictable_release(); one
 * that is removed or replaced meanwhile lives until its last pin is released. Once no pin is left an entry may lie elsewhere
 * at the next get, with the same bytes: a value must not hold addresses within itself. The cache does not order reads and
 * writes of a value: that is the program's.
 *
 * The callback is called without any lock of the cache, on the thread that was the reason or on one of Weir's. Several
 * threads may call it at once. It may use the cache, but not destroy it: weir_evictable_destroy() is refused there, or, where
 * Weir evicts on a thread of its own, leaves memory of the cache behind. A C++ exception that leaves it is named, and the
 * process is aborted, whatever abort_on_misuse says: entries would stay pinned. It may not be left by longjmp() or
 * pthread_exit() either. A thread that is cancelled in it ends after it.
 *
 * A forked child has the cache as it was; an empty one where entries lie in a zone of the parent's. Its first
 * weir_evictable_prepare() does what weir_resume_after_fork() does, so that the cache gives way there too.
 */
typedef struct weir_evictable weir_evictable;
typedef struct weir_entry weir_entry;

/* Why an entry left a cache. */
#define WEIR_EVICTED_FOR_ROOM 0u     /* another one needed room */
#define WEIR_EVICTED_FOR_PRESSURE 1u /* memory is short */
#define WEIR_EVICTED_REMOVED 2u      /* the program removed it, or destroyed the cache */
#define WEIR_EVICTED_REPLACED 3u     /* another value was inserted under its key, or was to be and was refused */
#define WEIR_EVICTED_REJECTED 4u     /* it was not taken: weir_evictable_publish() failed, or it was heavy and seldom asked for */

/* How a cache is to be. Zero everything first: zero is each one's default. */
struct weir_evictable_options {
    const char *name;  /* for figures, cut at 31 bytes */
    size_t max_bytes;  /* what the entries never exceed, with 32 bytes for each; 0: no bound but memory;
                          while the setting background is 0, where memory is not heard to be short, 256 MiB: what was
                          above that goes as entries come under new keys, or by weir_evictable_set_max(cache, 0) */
    size_t min_bytes;  /* what pressure leaves of them */
    size_t shards;     /* parts with a lock of their own, up to 1,024; 0: by CPUs and size */
    weir_zone *zone;   /* entries lie in runs of whole pages of this zone, down to its low mark (some 5 to 10 % of it are left);
                          the zone is destroyed after the cache; NULL: heap */
    /* Is told of every entry that leaves the cache, before it is freed. */
    void (*on_evict)(void *data, const void *key, size_t key_size, const void *value, size_t size, unsigned cause);
    void *data;     /* for on_evict */
    unsigned flags; /* WEIR_EVICTABLE_* */
    /* How long a miss takes, ns; 0: 100,000, a read of a solid-state disk. With the rate of hits it is the price of the cache's
       bytes. When memory is short the cheapest go first, of all caches of this process and of others that read its prices. */
    uint64_t miss_ns;
};

/*
 * The zone is the first of a list, and the heap the next: entries lie in the zone while that is above its low mark, and else in
 * runs of whole pages on the heap. For memory that is dear (locked, in huge pages) and does not hold the whole cache. Where the
 * zone is short entries in it go, and where the heap is, those on the heap.
 */
#define WEIR_EVICTABLE_ZONE_FIRST 1u

/*
 * Where entries weigh differently a full cache has light ones rather than heavy ones, so that most look-ups find their key. It may
 * refuse an entry of more than twice the mean weight until its key was asked for often. By this flag it has what most bytes are
 * found of, and refuses none for its weight. For values that cost as much to get as they are large.
 */
#define WEIR_EVICTABLE_FAVOUR_BYTES 2u

/*
 * Makes a cache; `size` is sizeof(struct weir_evictable_options), which may grow at its end. NULL options are all
 * defaults. Returns NULL with errno ENOMEM, or EINVAL for a zone that is none, for flags that are unknown or lack their zone,
 * and for more than 1,024 shards.
 */
weir_evictable *weir_evictable_create(const struct weir_evictable_options *options, size_t size);

/*
 * Frees a cache with all entries. No other thread uses the cache any more. Waits for an eviction under pressure that is under
 * way on a thread of the library's: the caller must not hold what on_evict waits for. Returns 0; or -1 with errno EBUSY if
 * entries are pinned or prepared, or a call of the program's is in on_evict: then the cache stays as it is. NULL is allowed, and
 * does nothing.
 */
int weir_evictable_destroy(weir_evictable *cache);

/* Gets the entry of a key, pinned, which counts as a use; NULL with errno ENOENT if there is none. O(1). */
weir_entry *weir_evictable_get(weir_evictable *cache, const void *key, size_t key_size);

/*
 * Makes an entry of `size` bytes, all zero, that is not in the cache yet. The program fills its value, and ends it by
 * weir_evictable_publish() or weir_evictable_cancel(). Returns NULL with errno ENOMEM, or EFBIG for a size that the cache
 * may never hold. The key's former entry leaves then, so that nobody finds what was to be replaced.
 */
weir_entry *weir_evictable_prepare(weir_evictable *cache, const void *key, size_t key_size, size_t size);

/*
 * Puts a prepared entry into the cache, in the place of the key's former one. Returns 0, and the entry is pinned. What the cache
 * refuses for its weight is the program's alone until the pin ends. Returns -1 where the entry is not taken and is still
 * prepared. The errno is EFBIG if it is larger than the cache may be now, or ENOMEM. ENOSPC says that all that would have to go
 * for it is pinned, or goes for other threads' entries. The key's former entry leaves in each case.
 */
int weir_evictable_publish(weir_evictable *cache, weir_entry *entry);

/* Frees a prepared entry. NULL is allowed. */
void weir_evictable_cancel(weir_evictable *cache, weir_entry *entry);

/* Ends a pin. NULL is allowed. A pin that is ended twice is not found: the entry may be freed while the cache has it. */
void weir_evictable_release(weir_evictable *cache, weir_entry *entry);

/*
 * Key and value of an entry that is pinned or prepared. Where `size` is not NULL it gets the length.
 * Values are aligned to 16 bytes.
 */
const void *weir_evictable_key(weir_evictable *cache, weir_entry *entry, size_t *size);
void *weir_evictable_value(weir_evictable *cache, weir_entry *entry, size_t *size);

/* Takes a key's entry out. Returns 0; or -1 with errno ENOENT if there is none. */
int weir_evictable_remove(weir_evictable *cache, const void *key, size_t key_size);

/* Takes all entries out. Returns 0; or -1 with errno EINVAL for NULL. */
int weir_evictable_clear(weir_evictable *cache);

/*
 * Frees at least `bytes`, if so many are not pinned, down to min_bytes; returns how many went. The cache then
 * keeps to what is left until weir_evictable_relieved(). Weir calls both by itself when memory is short, and when that is
 * over.
 */
size_t weir_evictable_evict(weir_evictable *cache, size_t bytes);
void weir_evictable_relieved(weir_evictable *cache);

/* Sets max_bytes, 0 as there; what is above it goes, as far as it is not pinned. Returns 0. */
int weir_evictable_set_max(weir_evictable *cache, size_t bytes);

/* Figures of a cache. Counts are since it was made. */
struct weir_evictable_stats {
    unsigned long long hits;
    unsigned long long misses;
    unsigned long long insertions;
    unsigned long long evicted_for_room;
    unsigned long long evicted_for_pressure;
    unsigned long long removed;
    unsigned long long replaced;
    unsigned long long rejected;
    size_t bytes;          /* of the entries */
    size_t entries;        /* how many those are */
    size_t target_bytes;   /* what the cache may hold now */
    size_t max_bytes;      /* what it may hold at most; SIZE_MAX without a bound */
    size_t pinned;         /* entries that the program pins */
    size_t metadata_bytes; /* the cache's own, beside its entries */
};

/* Fills *stats; `size` is its size, as with weir_usage(). O(entries). Returns 0; or -1 with errno EINVAL. */
int weir_evictable_stats(weir_evictable *cache, struct weir_evictable_stats *stats, size_t size);

#ifdef __cplusplus
}
#endif
#endif
