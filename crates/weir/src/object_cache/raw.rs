//! Objects between a cache and their use: a panic must not lose them.

use core::ptr::NonNull;
use weir_core::caches::user_cache::CacheId;
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
        unsafe { HEAP.cache_free(self.id, self.object.as_ptr()) }
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
