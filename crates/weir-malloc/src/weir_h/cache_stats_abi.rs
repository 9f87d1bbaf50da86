//! The figures of `weir.h`'s object caches, and of malloc's size classes, which are caches too.

use crate::errno::{EINVAL, refuse};
use crate::weir_h::cache_abi::{Cache, named};
use crate::weir_h::weir_abi::fill;
use core::ffi::c_int;
use core::mem::size_of;
use weir_core::caches::figures::CacheStats;
use weir_linux::process::heap::HEAP;

/// `struct weir_cache_stats`.
#[repr(C)]
pub struct Stats {
    name: [u8; 32],
    number: usize,
    size: usize,
    limit: usize,
    reserve: usize,
    used: usize,
    free: [usize; 3],
    slab_bytes: usize,
    requests: usize,
    failures: usize,
    visits: usize,
    misses: usize,
    crossed: usize,
    bucket: [usize; 3],
    working_set: usize,
    stale_ms: usize,
    trims: usize,
    trimmed_bytes: usize,
    drains: usize,
    drained_bytes: usize,
}

impl Stats {
    fn new(of: &CacheStats) -> Self {
        Self {
            name: of.name.0,
            number: of.number,
            size: of.size,
            limit: if of.limit == usize::MAX - 1 { usize::MAX } else { of.limit },
            reserve: of.reserve,
            used: of.used,
            free: [of.free_cpu, of.free_depot, of.free_slab],
            slab_bytes: of.slab_bytes,
            requests: of.requests as usize,
            failures: of.failures as usize,
            visits: of.visits as usize,
            misses: of.misses as usize,
            crossed: of.crossed as usize,
            bucket: of.bucket,
            working_set: of.working_set,
            stale_ms: (of.stale_ns / 1_000_000) as usize,
            trims: of.trims as usize,
            trimmed_bytes: of.trimmed_bytes as usize,
            drains: of.drains as usize,
            drained_bytes: of.drained_bytes as usize,
        }
    }
}

/// `weir_cache_stats`.
pub unsafe fn stats(cache: *mut Cache, out: *mut Stats, size: usize) -> c_int {
    // SAFETY: the caller's promise: a cache, or null.
    let Some(cache) = (unsafe { named(cache) }).filter(|_| !out.is_null() && size > 0) else { return refuse(EINVAL) };
    let stats = HEAP.cache_stats(cache.id);
    // SAFETY: the caller's promise: `size` bytes at `out`.
    unsafe { fill(out.cast(), size, &Stats::new(&stats)) };
    0
}

/// `weir_cache_next`.
pub unsafe fn next(out: *mut Stats, size: usize) -> c_int {
    if out.is_null() || size < core::mem::offset_of!(Stats, number) + size_of::<usize>() {
        return refuse(EINVAL);
    }
    // SAFETY: the caller's promise: `size` bytes at `out`, which hold the number.
    unsafe {
        let Some(found) = HEAP.next_cache((&raw const (*out).number).read()) else { return 0 };
        fill(out.cast(), size, &Stats::new(&found));
    }
    1
}

const _: () = assert!(size_of::<Stats>() == 32 + 23 * size_of::<usize>());
