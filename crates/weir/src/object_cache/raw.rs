//! Objects without a type: the engine's caches by number, and what lies between a cache and its use, which a panic must not lose.
//!
//! The functions here are no generic ones: a program's crate calls them for its types, and is compiled with no copy of the
//! engine of its own.

use core::ptr::NonNull;
use weir_core::caches::figures::CacheStats;
use weir_core::caches::user_cache::{Busy, CacheId, LimitError};
use weir_linux::process::heap::HEAP;

/// Objects moved between a cache and its user at a time by the batch forms.
pub(super) const BATCH: usize = 64;

/// An object without a value, or with one whose use has ended: it is freed when this is dropped.
pub(super) struct Raw {
    pub id: CacheId,
    pub object: NonNull<u8>,
}

impl Drop for Raw {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the object is one of the cache, and this is all that refers to it.
        unsafe { free(self.id, self.object.as_ptr()) }
    }
}

/// Several objects of the kind of [`Raw`]: those from `first` to `end`.
pub(super) struct RawBatch {
    pub id: CacheId,
    pub objects: [*mut u8; BATCH],
    pub first: usize,
    pub end: usize,
}

impl RawBatch {
    pub fn free(&mut self) {
        let objects = &self.objects[core::mem::take(&mut self.first)..core::mem::take(&mut self.end)];
        if !objects.is_empty() {
            // SAFETY: objects of the cache, without a value that is used, and this is all that refers to them.
            unsafe { HEAP.cache_free_batch(self.id, objects) }
        }
    }
}

impl Drop for RawBatch {
    fn drop(&mut self) {
        self.free();
    }
}

/// An object of a cache; null where memory is refused, the limit is reached or an `init` failed.
#[inline(always)]
pub(super) fn alloc(id: CacheId) -> *mut u8 {
    let object = HEAP.cache_alloc_fast(id);
    if object.is_null() { alloc_slow(id) } else { object }
}

#[cold]
fn alloc_slow(id: CacheId) -> *mut u8 {
    HEAP.cache_alloc(id)
}

/// Takes an object back, on whatever CPU.
///
/// # Safety
/// The object is the cache's (another is named as a misuse, as far as can be seen), and it is not used any more.
#[inline(always)]
pub(super) unsafe fn free(id: CacheId, object: *mut u8) {
    // SAFETY: the caller gives the object up.
    if !unsafe { HEAP.cache_free_fast(id, object) } {
        // SAFETY: it was not taken back.
        unsafe { free_slow(id, object) }
    }
}

/// # Safety
/// As for [`free`].
#[cold]
unsafe fn free_slow(id: CacheId, object: *mut u8) {
    // SAFETY: the caller gives the object up.
    unsafe { HEAP.cache_free(id, object) }
}

/// Fills `out` with objects, as many as can be had; returns how many.
pub(super) fn alloc_batch(id: CacheId, out: &mut [*mut u8]) -> usize {
    HEAP.cache_alloc_batch(id, out)
}

/// Destroys a cache; an error, and nothing done, if objects of it are out.
///
/// # Safety
/// No other code uses the cache meanwhile, nor afterwards if this succeeds.
pub(super) unsafe fn destroy(id: CacheId) -> Result<(), Busy> {
    // SAFETY: as the caller promises.
    unsafe { HEAP.destroy_cache(id) }
}

pub(super) fn set_limit(id: CacheId, limit: usize) -> Result<(), LimitError> {
    HEAP.set_cache_limit(id, limit)
}

pub(super) fn set_reserve(id: CacheId, objects: usize) -> Result<(), LimitError> {
    HEAP.set_cache_reserve(id, objects)
}

pub(super) fn stats(id: CacheId) -> CacheStats {
    HEAP.cache_stats(id)
}
