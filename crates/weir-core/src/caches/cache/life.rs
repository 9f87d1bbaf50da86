//! The life of a cache's number, and how a cache ends while reclaim and finalizers may be at work on it.
//!
//! `FREE` → `MAKING` (under the table's lock) → `LIVE` → `DYING` → `FREE` (under the table's lock).
//!
//! - Reclaim looks at a cache only while it is `LIVE`, and only under a batch lock of the balancer's. That is the first node's,
//!   or, for reports of slabs, their node's. What it finds out of a cache (its geometry, whether its free objects keep their
//!   contents) holds until it releases that lock, and no longer.
//! - Finalizers run under no lock, and so does the move callback. They begin under the first node's batch lock, and are counted
//!   until they end.
//! - The end of a cache sets `DYING` under the first node's batch lock and then passes the locks of all nodes. So no trim, drain
//!   or report works on the cache then, and none will. Then it waits until the count of finalizers is 0, which nothing raises
//!   now.
//!
//! The interleaving that this excludes: reclaim has taken objects out of a bucket. The destroyer finds all slabs that it sees
//! empty and frees the number. Another cache gets it, and reclaim puts the objects into slabs of another geometry.
//!
//! The model is `crates/weir-models/tests/caches/life.rs`.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::pages::HeapPages;
use crate::platform::Platform;
use crate::platform::sync::{AtomicU8, AtomicU32, constructor};

pub(super) const FREE: u8 = 0;
pub(super) const MAKING: u8 = 1;
pub(super) const LIVE: u8 = 2;
const DYING: u8 = 3;

/// Where in its life a cache is.
pub(crate) struct Life {
    state: AtomicU8,
    /// Slabs of it whose finalizers run now, outside of all locks, and passes that call its move callback.
    finalizing: AtomicU32,
}

impl Life {
    constructor! {
        /// A life that has come to `state`.
        pub fn new(state: u8) -> Self {
            Self { state: AtomicU8::new(state), finalizing: AtomicU32::new(0) }
        }
    }

    /// Whether the number has no cache. Under the table's lock.
    pub(super) fn is_free(&self) -> bool {
        self.state.load(Acquire) == FREE
    }

    /// The number is given to a cache that is being made. Under the table's lock.
    pub(super) fn make(&self) {
        self.state.store(MAKING, Relaxed);
    }

    /// The cache is whole, or what was to end it is undone: reclaim may look at it.
    pub(crate) fn begin(&self) {
        self.state.store(LIVE, Release);
    }

    /// Whether it was made and is not being destroyed. What is live stays so while a batch lock is held.
    pub(super) fn is_live(&self) -> bool {
        self.state.load(Acquire) == LIVE
    }

    /// Ends it: returns once neither reclaim nor a finalizer works on it or will. `false`: it was not live.
    pub(crate) fn end<P: Platform>(&self, pages: &HeapPages<P>) -> bool {
        let batch = pages.batch(0);
        if self.state.compare_exchange(LIVE, DYING, AcqRel, Acquire).is_err() {
            return false;
        }
        drop(batch);
        // Reports of further nodes' slabs go under locks of their own; what begins from here on finds the cache dying.
        pages.pass_batches();
        loop {
            let finalizing = self.finalizing.load(Acquire);
            if finalizing == 0 {
                return true;
            }
            pages.platform.wait(&self.finalizing, finalizing);
        }
    }

    /// The number has no cache any more. Under the table's lock.
    pub(super) fn free(&self) {
        self.state.store(FREE, Release);
    }

    /// Finalizers of a slab begin, or a pass that calls the move callback. Under the first node's batch lock, of a live cache.
    pub(crate) fn begin_finalizers(&self) {
        self.finalizing.fetch_add(1, Acquire);
    }

    /// They have returned, and the slab has been given back. The cache may be gone when this returns. The count may be 0 already:
    /// a finalizer or the move callback forked, and in the child the count began anew. One that wrapped around would hold
    /// [`Life::end`] up for good.
    pub(crate) fn end_finalizers<P: Platform>(&self, platform: &P) {
        let _ = self.finalizing.fetch_update(Release, Relaxed, |count| count.checked_sub(1));
        platform.wake(&self.finalizing);
    }

    /// In a forked child: what the parent's other threads finalized is lost to it, and not waited for.
    pub(crate) fn inherit(&self) {
        // A write would copy the page that it lies in.
        if self.finalizing.load(Relaxed) != 0 {
            self.finalizing.store(0, Relaxed);
        }
    }
}
