//! Waiting for a value that another thread computes, beside the shard's lock.
//!
//! A thread may find, under the lock, that a key's value is being computed. It notes that it waits, reads the count of landings,
//! and gives the lock back. It sleeps while the count is what it was. A computation that ends is unlinked under the lock; then,
//! if one waits, the count goes up and all sleepers are woken, and look again.
//!
//! The interleaving that this excludes: the computation ends, and wakes no thread, between the decision to sleep and the sleep. The
//! count was read under the lock while the computation was linked, so it has changed since. The kernel compares it as it puts the
//! thread to sleep, and does not let the thread sleep.

use crate::platform::sync::{AtomicU32, constructor};
use core::sync::atomic::Ordering::Relaxed;

/// The count of a shard.
#[derive(Debug, Default)]
pub struct Landings(AtomicU32);

impl Landings {
    constructor! {
        /// Nothing ended yet.
        pub fn new() -> Self {
            Self(AtomicU32::new(0))
        }
    }

    /// The count, read under the shard's lock.
    pub fn seen(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Sleeps while the count is `seen`, or for no reason; the lock is given back. `sleep` is the kernel's: it compares and
    /// sleeps in one step.
    pub fn wait(&self, seen: u32, sleep: impl FnOnce(&AtomicU32, u32)) {
        sleep(&self.0, seen);
    }

    /// Wakes all who wait, after what they wait for was unlinked under the lock.
    pub fn landed(&self, wake_all: impl FnOnce(&AtomicU32)) {
        self.0.fetch_add(1, Relaxed);
        wake_all(&self.0);
    }
}
