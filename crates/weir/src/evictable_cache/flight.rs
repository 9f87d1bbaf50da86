//! Values that are being computed: one thread computes, others of the same key wait for it.
//!
//! A flight is a node on the computing thread's stack, linked into its shard under the lock, and unlinked in the section
//! that puts the value in. How others wait for that is told in `weir_core::evict::landings`.

use core::cell::Cell;
use core::ptr::NonNull;
use weir_linux::process::evictable_caches as process;

use super::header::Header;

/// A value on its way. The cells are used under the shard's lock.
pub struct Flight {
    pub hash: u64,
    /// The block that is to be the entry; it has its key.
    pub entry: NonNull<Header>,
    /// The thread that computes.
    pub thread: usize,
    pub is_awaited: Cell<bool>,
    pub next: Cell<Option<NonNull<Flight>>>,
}

impl Flight {
    /// For an entry to come, of this thread.
    pub fn new(hash: u64, entry: NonNull<Header>) -> Self {
        let (thread, is_awaited, next) = (process::this_thread(), Cell::new(false), Cell::new(None));
        Self { hash, entry, thread, is_awaited, next }
    }

    /// Whether somebody waits for it. Read under the lock, once it is unlinked.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited.get()
    }
}
