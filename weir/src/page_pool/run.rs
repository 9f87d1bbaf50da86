//! A run of pages in flight.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use weir_linux::process::page_pools;

use super::shared::Shared;

/// A run of pages of a [`PagePool`](crate::PagePool), put back when dropped, on any thread. It reads and writes as a
/// slice of bytes, and stays where it is when it moves.
pub struct PoolPages {
    pool: Shared,
    run: NonNull<[u8]>,
}

// SAFETY: the pages are this value's alone, and the pool may be used from any thread.
unsafe impl Send for PoolPages {}
// SAFETY: a shared reference reads only.
unsafe impl Sync for PoolPages {}

impl PoolPages {
    pub(super) fn new(pool: Shared, run: NonNull<[u8]>) -> Self {
        Self { pool, run }
    }

    pub(super) fn is_of(&self, pool: &Shared) -> bool {
        self.pool.is_same(pool)
    }

    /// The first byte, at a multiple of 4,096.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.run.as_ptr().cast()
    }

    /// Gives the run up without putting it back: for C, or for a ring that has it by its address. It stays in flight,
    /// and the pool does not end before [`PagePool::pages_from_raw`](crate::PagePool::pages_from_raw).
    pub fn into_raw(self) -> NonNull<[u8]> {
        let mut this = ManuallyDrop::new(self);
        let run = this.run;
        // SAFETY: the value is not used any more, nor dropped.
        unsafe { core::ptr::drop_in_place(&mut this.pool) };
        run
    }
}

impl Deref for PoolPages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped memory of that length, this value's alone; mapped bytes always have a value.
        unsafe { self.run.as_ref() }
    }
}

impl DerefMut for PoolPages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped memory of that length, this value's alone, and the value is borrowed exclusively.
        unsafe { self.run.as_mut() }
    }
}

impl fmt::Debug for PoolPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolPages").field("at", &self.run.cast::<u8>()).field("len", &self.run.len()).finish()
    }
}

impl Drop for PoolPages {
    fn drop(&mut self) {
        // SAFETY: a run of this pool's, in flight, which nothing else refers to.
        unsafe { page_pools::put(self.pool.pool(), &[self.run.as_ptr().cast()]) }
    }
}
