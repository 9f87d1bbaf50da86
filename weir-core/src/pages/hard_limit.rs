//! The hard limit: what the heap may hold at most (setting `hard_limit`).
//!
//! What is handed out counts in full, touched or not: a program may touch it at any time, when nothing could be refused any
//! more. Free memory counts as far as it is resident. An allocation that would exceed the limit gets [`Short`](super::Short), as where the
//! system refuses memory, unless memory that is resident already serves it; the heap then reclaims, and tries again.
//!
//! What is about to be taken is *held* first, so that threads that allocate at once do not each find the same room. Without a
//! limit nothing of this is done, but for one load.

use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// What counts beside what zones and statistics say, bytes.
pub(crate) struct HardLimit {
    /// Retained blocks, resident.
    pub(crate) retained: AtomicUsize,
    /// Held by allocations under way.
    pub(super) held: AtomicUsize,
}

impl HardLimit {
    pub(crate) const fn new() -> Self {
        Self { retained: AtomicUsize::new(0), held: AtomicUsize::new(0) }
    }

    /// In a forked child: the threads that held something are not there.
    pub(crate) fn inherit(&self) {
        self.held.store(0, SeqCst);
    }
}

/// Room that an allocation has for itself until it is counted as taken.
pub(crate) struct Hold<'a> {
    pub(super) held: &'a AtomicUsize,
    pub(super) bytes: usize,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.held.fetch_sub(self.bytes, SeqCst);
        }
    }
}
