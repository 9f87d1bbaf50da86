//! `weir.h`'s figures of evictable caches.

use crate::errno::{EINVAL, refuse};
use crate::weir_h::evictable_abi::{Cache, named};
use crate::weir_h::weir_abi::fill;
use core::ffi::c_int;

/// `struct weir_evictable_stats`.
#[repr(C)]
pub struct Stats {
    counts: [u64; 10],
    sizes: [usize; 9],
    is_congested: usize,
}

/// `weir_evictable_stats`.
pub unsafe fn stats(cache: *mut Cache, out: *mut Stats, size: usize) -> c_int {
    // SAFETY: the caller's cache.
    let Some(cache) = (unsafe { named(cache) }).filter(|_| !out.is_null() && size > 0) else { return refuse(EINVAL) };
    let stats = cache.stats();
    let answer = Stats {
        counts: [
            stats.hits,
            stats.misses,
            stats.insertions,
            stats.evicted_for_room,
            stats.evicted_for_pressure,
            stats.removed,
            stats.replaced,
            stats.rejected,
            stats.write_backs,
            stats.write_back_errors,
        ],
        sizes: [
            stats.bytes,
            stats.entries,
            stats.target_bytes,
            stats.max_bytes,
            stats.dirty_bytes,
            stats.dirty_entries,
            stats.writing,
            stats.pinned,
            stats.metadata_bytes,
        ],
        is_congested: usize::from(stats.is_congested),
    };
    // SAFETY: the caller's promise: `size` bytes at `out` may be written.
    unsafe { fill(out.cast(), size, &answer) };
    0
}
