//! Object caches by number: what the typed caches of the crate `weir` and the C interface stand on.
//!
//! Every function may be called from any thread at any time, unless it says otherwise.

pub use weir_core::caches::figures::CacheStats;
pub use weir_core::caches::geometry::MAX_OBJECT;
pub use weir_core::caches::user_cache::{Busy, CacheId, Fini, Flags, Init, LimitError, MakeError, Spec};

use crate::process::heap::{FINALIZER, HEAP, on_first_use};

/// Makes a cache. One with a `fini` starts a thread of the program's kind the first time, which calls those of
/// objects whose slabs are to be released.
pub fn make(spec: &Spec<'_>) -> Result<CacheId, MakeError> {
    on_first_use();
    if spec.fini.is_some() {
        FINALIZER.start();
    }
    HEAP.user_caches().make(spec)
}

/// Destroys a cache; fails if objects of it are still out, and then nothing has happened. Calls `fini` for the rest,
/// and waits for reclaim that is at work on some of them.
///
/// # Safety
/// No other code uses the cache meanwhile, nor afterwards if this succeeds.
pub unsafe fn destroy(id: CacheId) -> Result<(), Busy> {
    // SAFETY: as the caller promises.
    unsafe { HEAP.user_caches().destroy(id) }
}

/// An object; null when memory is refused, the limit is reached or an `init` failed. O(1), a few nanoseconds, but for
/// refills.
#[inline(always)]
pub fn alloc(id: CacheId) -> *mut u8 {
    let object = HEAP.user_caches().alloc_fast(id);
    if object.is_null() { alloc_slow(id) } else { object }
}

#[cold]
fn alloc_slow(id: CacheId) -> *mut u8 {
    HEAP.user_caches().alloc(id)
}

/// Takes an object back, on whatever CPU: O(1), a few nanoseconds, but for overflows.
///
/// # Safety
/// The object is the cache's (another is named as a misuse, as far as can be seen), and it is not used any more.
#[inline(always)]
pub unsafe fn free(id: CacheId, object: *mut u8) {
    // SAFETY: the caller gives the object up.
    if !unsafe { HEAP.user_caches().free_fast(id, object) } {
        // SAFETY: it was not taken back.
        unsafe { free_slow(id, object) }
    }
}

/// # Safety
/// As for [`free`].
#[cold]
unsafe fn free_slow(id: CacheId, object: *mut u8) {
    // SAFETY: the caller gives the object up.
    unsafe { HEAP.user_caches().free(id, object) }
}

/// Fills `out` with objects, as many as can be had; returns how many.
pub fn alloc_batch(id: CacheId, out: &mut [*mut u8]) -> usize {
    HEAP.user_caches().alloc_batch(id, out)
}

/// Takes objects back.
///
/// # Safety
/// As [`free`], for each.
pub unsafe fn free_batch(id: CacheId, objects: &[*mut u8]) {
    // SAFETY: as the caller promises.
    unsafe { HEAP.user_caches().free_batch(id, objects) }
}

/// Sets how many objects may be out at a time, for a cache that was made with a limit.
pub fn set_limit(id: CacheId, limit: usize) -> Result<(), LimitError> {
    HEAP.user_caches().set_limit(id, limit)
}

/// Sets how many free objects reclaim leaves to the cache (on each NUMA node), and fills them up.
pub fn set_reserve(id: CacheId, objects: usize) -> Result<(), LimitError> {
    HEAP.user_caches().set_reserve(id, objects)
}

/// The cache, of those that the program made, that has `addr` in one of its slabs.
pub fn at(addr: usize) -> Option<CacheId> {
    HEAP.user_caches().at(addr)
}

/// A cache's figures.
pub fn stats(id: CacheId) -> CacheStats {
    HEAP.user_caches().stats(id)
}

/// The figures of the first cache, malloc's size classes among them, whose number is above `number`; from 0 on they
/// are all seen.
///
/// ```
/// let mut number = 0;
/// while let Some(cache) = weir_linux::process::caches::next(number) {
///     println!("{cache}");
///     number = cache.number;
/// }
/// assert!(number >= 72);
/// ```
pub fn next(number: usize) -> Option<CacheStats> {
    HEAP.user_caches().next(number)
}
