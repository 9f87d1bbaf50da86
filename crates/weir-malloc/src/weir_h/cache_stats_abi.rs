//! The figures of `weir.h`'s object caches, and of malloc's size classes, which are caches too.

use crate::errno::{EINVAL, refuse};
use crate::weir_h::cache_abi::Cache;
use crate::weir_h::handle::{Handle, named};
use crate::weir_h::structs::tell;
use core::ffi::c_int;
use core::mem::size_of;
use weir_core::caches::figures::CacheStats;
use weir_linux::process::heap::HEAP;

/// `struct weir_cache_stats`.
#[repr(C)]
pub struct Stats {
    name: [u8; 32],
    number: usize,
    figures: [usize; 22],
}

impl Stats {
    fn new(of: &CacheStats) -> Self {
        let figures = [
            of.size,
            of.limit,
            of.reserve,
            of.used,
            of.free_cpu,
            of.free_depot,
            of.free_slab,
            of.slab_bytes,
            of.requests as usize,
            of.failures as usize,
            of.visits as usize,
            of.misses as usize,
            of.crossed as usize,
            of.bucket[0],
            of.bucket[1],
            of.bucket[2],
            of.working_set,
            (of.stale_ns / 1_000_000) as usize,
            of.trims as usize,
            of.trimmed_bytes as usize,
            of.drains as usize,
            of.drained_bytes as usize,
        ];
        Self { name: of.name.0, number: of.number, figures }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cache_stats(cache: *mut Handle<Cache>, out: *mut Stats, size: usize) -> c_int {
    // SAFETY: the caller's promise: a cache, or null.
    let answer = unsafe { named(cache) }.map(|cache| Stats::new(&HEAP.cache_stats(cache.id)));
    // SAFETY: the caller's promise: `size` bytes at `out`.
    unsafe { tell(out, size, answer) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cache_next(out: *mut Stats, size: usize) -> c_int {
    if out.is_null() || size < core::mem::offset_of!(Stats, number) + size_of::<usize>() {
        return refuse(EINVAL);
    }
    // SAFETY: the caller's promise: `size` bytes at `out`, which hold the number.
    unsafe {
        let Some(found) = HEAP.next_cache((&raw const (*out).number).read()) else { return 0 };
        tell(out, size, Some(Stats::new(&found)));
    }
    1
}

const _: () = assert!(size_of::<Stats>() == 32 + 23 * size_of::<usize>());
