//! Sampled allocations, of the heap profile: each is a run of pages or a mapping of its own, never an object of a size class.
//!
//! So a free of one ends in the slow path of large blocks, which looks it up among the samples. The fast paths of `malloc` and
//! `free` know nothing of samples. A page for a small block costs little: there is one in 512 KiB of allocations.

use core::alloc::Layout;
use core::ptr::{self, null_mut};

use super::Heap;
use super::lookup::Found;
use super::view::view;
use crate::base::size_class::{MAX_SIZE, layout_of};
use crate::platform::Platform;
use crate::profile::recorder::Origin;

view! {
    /// Allocations that are samples of the heap profile.
    pub struct Samples;
    /// Sampled allocations.
    fn samples;
}

impl<P: Platform> Samples<'_, P> {
    /// Allocates what `layout` asks for as a sample of the heap profile; all of it is zero if that `is_zeroed`. Null when memory is
    /// refused.
    #[cold]
    pub fn alloc(self, layout: Layout, is_zeroed: bool, origin: Origin<'_>) -> *mut u8 {
        // Of no run class: its free is not to end in a bucket.
        let large = self.heap.large().alloc_large(layout);
        // SAFETY: allocated just now.
        let block = if is_zeroed { unsafe { self.heap.large().zeroed(large) } } else { large.0 };
        if !block.is_null() {
            self.sample(block, layout.size(), origin);
        }
        block
    }

    /// [`Heap::realloc`], of which the new block is a sample.
    ///
    /// # Safety
    /// As there.
    #[cold]
    pub unsafe fn realloc(self, block: *mut u8, size: usize, origin: Origin<'_>) -> *mut u8 {
        if size > MAX_SIZE {
            // SAFETY: the caller's promise is the same.
            let new = unsafe { self.heap.realloc(block, size) };
            if new.is_null() {
                return new;
            }
            let found = self.heap.lookup(new as usize);
            if let Some(Found::Run { page, kind, .. }) = found {
                self.heap.caches.leave_class(kind, page);
            }
            if matches!(found, Some(Found::Run { .. } | Found::Mapped(_))) {
                self.sample(new, size, origin);
            }
            return new;
        }
        // SAFETY: the caller's block.
        let old = unsafe { self.heap.usable_size(block) };
        if old == 0 {
            // A wrong pointer, which has been reported.
            return null_mut();
        }
        let new = layout_of(size).map_or(null_mut(), |layout| self.alloc(layout, false, origin));
        if !new.is_null() {
            // SAFETY: the old block holds `old` bytes and the new one at least `size`; they are distinct, as the old one is still
            // allocated. The caller gives the old one up by this call, so it may be freed.
            unsafe {
                ptr::copy_nonoverlapping(block, new, old.min(size));
                self.heap.free(block);
            }
        }
        new
    }

    /// Makes a block a sample.
    fn sample(self, block: *mut u8, size: usize, origin: Origin<'_>) {
        if let Some(weight) = self.heap.profile.record(self.heap.platform(), block, size, origin) {
            self.heap.platform().block_is_sampled(block as usize, size, weight);
        }
    }

    /// A block is freed, or resized where it is: if it was a sample it is one no more.
    #[inline]
    pub(super) fn unsample(self, block: *mut u8) {
        if self.heap.profile.forget(self.heap.platform(), block).is_some() {
            self.heap.platform().sample_is_freed(block as usize);
        }
    }

    /// Does `resize`, which may move the block, or return null and leave it. Another thread may be given its address before
    /// `resize` returns, so the block is taken off the samples before.
    pub(super) fn resize_sampled(self, block: *mut u8, resize: impl FnOnce() -> *mut u8) -> *mut u8 {
        let sample = self.heap.profile.forget(self.heap.platform(), block);
        if sample.is_some() {
            self.heap.platform().sample_is_freed(block as usize);
        }
        let new = resize();
        if let (Some(sample), true) = (sample, new.is_null()) {
            self.heap.profile.restore(self.heap.platform(), sample);
            self.heap.platform().block_is_sampled(block as usize, sample.size(), sample.weight());
        }
        new
    }
}
