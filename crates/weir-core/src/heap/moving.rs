//! Blocks that a program moves by itself so that sparse pages become free.

use core::ptr::null_mut;

use super::Heap;
use crate::platform::Platform;

impl<P: Platform> Heap<P> {
    /// Whether a block begins at `block` that had better be elsewhere: its page would be free without a few. `false` for a
    /// pointer to no block; of a freed block the answer means nothing. O(1).
    pub fn should_move(&self, block: *const u8) -> bool {
        self.caches.should_move(block.addr())
    }

    /// A block of the same size class where what lies at `block` should be; null where it should stay. `block` stays allocated.
    pub fn alloc_to_move(&self, block: *const u8) -> *mut u8 {
        let new = self.caches.alloc_to_move(block.addr());
        self.direct().slow_path_ends();
        new.unwrap_or(null_mut())
    }

    /// Frees a block that was copied elsewhere, past the CPU's bucket, so that no allocation gets its place soon. `false`: it is
    /// no object of a size class, and still to be freed.
    ///
    /// # Safety
    /// As for [`Heap::free`].
    pub unsafe fn free_moved(&self, block: *mut u8) -> bool {
        let is_free = self.caches.free_moved(block);
        if is_free {
            self.direct().slow_path_ends();
        }
        is_free
    }
}
