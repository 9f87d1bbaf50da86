/*
 * weir.h: what a C or C++ program can ask of Weir beyond malloc.
 *
 * Link with -lweir, or run under `LD_PRELOAD=libweir.so` and look the names up with dlsym(): malloc, free and
 * C++'s new and delete are Weir's in either case, and nothing here is needed to use them.
 *
 * All functions may be called from any thread at any time, but not from signal handlers.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stddef.h>

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
 * Returns everything idle to the operating system now, whatever the pressure: caches down to nothing, free blocks,
 * free pages. Weir does this by itself when memory is short; calling it is for a program that knows it is about to
 * be idle for long. Returns 1 if anything was returned, 0 if nothing was idle.
 */
int weir_trim(void);

/* What the heap holds, in bytes. The numbers are read one after another while other threads go on. */
struct weir_usage {
    size_t used_bytes;     /* in blocks that the program holds, at their usable sizes */
    size_t idle_bytes;     /* resident and free: what weir_trim() could return */
    size_t heap_bytes;     /* resident or used, outside the mappings below */
    size_t mapped_bytes;   /* in blocks so big that each has a mapping of its own */
    size_t mapped_count;   /* how many those are */
    size_t metadata_bytes; /* Weir's own */
};

/*
 * Fills *usage. `size` is sizeof(struct weir_usage) as the caller knows it: the structure may grow at its end, and
 * what the library does not know is zero. Returns 0; or -1 with errno EINVAL if usage is null or size is 0.
 */
int weir_usage(struct weir_usage *usage, size_t size);

#ifdef __cplusplus
}
#endif
#endif
