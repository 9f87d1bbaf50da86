//! A run of pages in flight.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use weir_linux::process::heap::HEAP;

use super::shared::Shared;
use crate::filling::{Filling, shows_what_is_filled};

/// A run of pages of a [`PagePool`](crate::PagePool), put back when dropped, on any thread. It is filled from its
/// beginning, and shows what was filled; it stays where it is when it moves.
///
/// What it holds when it is handed out is what was freed there before, so nobody sees it:
///
/// ```compile_fail,E0308
/// let pool = weir::PagePool::new("disk 0").unwrap();
/// let run = pool.get().unwrap();
/// let stale: &[u8] = &run;
/// ```
///
/// ```
/// let pool = weir::PagePool::new("disk 0")?;
/// let mut run = pool.get().ok_or("no memory")?;
/// assert_eq!((run.filled().len(), run.capacity()), (0, 4096));
/// // From a call that fills memory, such as rustix's `read(fd, run.spare())`:
/// run.spare()[0].write(7);
/// // SAFETY: one byte was written.
/// unsafe { run.advance(1) };
/// assert_eq!(run.append(b"hello"), 5);
/// assert_eq!(run.filled(), b"\x07hello");
/// // For a call that wants bytes which have a value:
/// assert_eq!(run.zeroed().len(), 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PoolPages {
    pool: Shared,
    memory: Filling,
}

// SAFETY: the pages are this value's alone, and the pool may be used from any thread.
unsafe impl Send for PoolPages {}
// SAFETY: a shared reference reads only.
unsafe impl Sync for PoolPages {}

impl PoolPages {
    /// # Safety
    /// The run is in flight from this pool, and nothing else's.
    pub(super) unsafe fn new(pool: Shared, run: NonNull<[u8]>) -> Self {
        // SAFETY: a run in flight is mapped, private memory, and this value's as the caller promises.
        let memory = unsafe { Filling::new(run) };
        Self { pool, memory }
    }

    pub(super) fn is_of(&self, pool: &Shared) -> bool {
        self.pool.is_same(pool)
    }

    shows_what_is_filled!();

    /// Gives the run up without putting it back: for C, or for a ring that has it by its address. It stays in flight,
    /// and the pool does not end before [`PagePool::pages_from_raw`](crate::PagePool::pages_from_raw).
    pub fn into_raw(self) -> NonNull<[u8]> {
        let mut this = ManuallyDrop::new(self);
        let run = this.memory.memory();
        // SAFETY: the value is not used any more, nor dropped.
        unsafe { core::ptr::drop_in_place(&mut this.pool) };
        run
    }
}

impl fmt::Debug for PoolPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (filled, capacity) = (self.filled().len(), self.capacity());
        let mut text = f.debug_struct("PoolPages");
        text.field("at", &self.as_ptr()).field("filled", &filled).field("capacity", &capacity).finish_non_exhaustive()
    }
}

impl Drop for PoolPages {
    fn drop(&mut self) {
        // SAFETY: a run of this pool's, in flight, which nothing else refers to.
        unsafe { HEAP.pool_put(self.pool.pool(), &[self.memory.as_mut_ptr()]) }
    }
}
