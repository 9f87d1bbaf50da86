//! Sampled allocations, of the heap profile: each is a run of pages or a mapping of its own, never an object of a size class.
//!
//! So a free of one ends in the slow path of large blocks, which looks it up among the samples; the fast paths of `malloc` and
//! `free` know nothing of samples. A page for a small block costs little: there is one in 512 KiB of allocations.

use core::ptr::{self, null_mut};

use super::Heap;
use super::lookup::Found;
use crate::base::size_class::{MAX_SIZE, MIN_ALIGN};
use crate::platform::{Platform, Refused};
use crate::profile::recorder::{Origin, Recorder};

impl<P: Platform> Heap<P> {
    /// The heap profile.
    pub fn profile(&self) -> &Recorder {
        &self.profile
    }

    /// Switches samples to a mean of so many bytes between two, or off by 0; `now` is in ns since 1970. Which allocations are
    /// sampled the caller decides ([`crate::profile::interval`]). An error: the tables cannot be mapped, and sampling is off.
    pub fn switch_profile(&self, mean: u64, now: u64) -> Result<(), Refused> {
        self.profile.switch(self.platform(), mean, now)
    }

    /// Allocates `size` bytes aligned to `align`, a power of two, as a sample of the heap profile; all of it is zero if that
    /// `is_zeroed`. Null when memory is refused.
    #[cold]
    pub fn alloc_sampled(&self, size: usize, align: usize, is_zeroed: bool, origin: Origin<'_>) -> *mut u8 {
        let (some, align) = (size.max(1), align.max(MIN_ALIGN));
        // Of no run class: its free is not to end in a bucket.
        let large = self.alloc_large(some, align);
        // SAFETY: allocated just now.
        let block = if is_zeroed { unsafe { self.zeroed(large) } } else { large.0 };
        if !block.is_null() {
            self.sample(block, size, origin);
        }
        block
    }

    /// [`Heap::realloc`], of which the new block is a sample.
    ///
    /// # Safety
    /// As there.
    #[cold]
    pub unsafe fn realloc_sampled(&self, block: *mut u8, size: usize, origin: Origin<'_>) -> *mut u8 {
        if size > MAX_SIZE {
            // SAFETY: the caller's promise is the same.
            let new = unsafe { self.realloc(block, size) };
            if new.is_null() {
                return new;
            }
            let found = self.lookup(new as usize);
            if let Some(Found::Run { page, kind, .. }) = found {
                self.caches.leave_class(kind, page);
            }
            if matches!(found, Some(Found::Run { .. } | Found::Mapped(_))) {
                self.sample(new, size, origin);
            }
            return new;
        }
        // SAFETY: the caller's block.
        let old = unsafe { self.usable_size(block) };
        if old == 0 {
            // A wrong pointer, which has been reported.
            return null_mut();
        }
        let new = self.alloc_sampled(size, MIN_ALIGN, false, origin);
        if !new.is_null() {
            // SAFETY: the old block holds `old` bytes and the new one at least `size`; they are distinct, as the old one is still
            // allocated. The caller gives the old one up by this call, so it may be freed.
            unsafe {
                ptr::copy_nonoverlapping(block, new, old.min(size));
                self.free(block);
            }
        }
        new
    }

    /// Makes a block a sample.
    fn sample(&self, block: *mut u8, size: usize, origin: Origin<'_>) {
        if let Some(weight) = self.profile.record(self.platform(), block, size, origin) {
            self.platform().block_is_sampled(block as usize, size, weight);
        }
    }

    /// A block is freed, or resized where it is: if it was a sample it is one no more.
    #[inline]
    pub(super) fn unsample(&self, block: *mut u8) {
        if self.profile.forget(self.platform(), block).is_some() {
            self.platform().sample_is_freed(block as usize);
        }
    }

    /// Does `resize`, which may move the block, or return null and leave it. Another thread may be given its address before
    /// `resize` returns, so the block is taken off the samples before.
    pub(super) fn resize_sampled(&self, block: *mut u8, resize: impl FnOnce() -> *mut u8) -> *mut u8 {
        let sample = self.profile.forget(self.platform(), block);
        if sample.is_some() {
            self.platform().sample_is_freed(block as usize);
        }
        let new = resize();
        if let (Some(sample), true) = (sample, new.is_null()) {
            self.profile.restore(self.platform(), sample);
            self.platform().block_is_sampled(block as usize, sample.size(), sample.weight());
        }
        new
    }
}
