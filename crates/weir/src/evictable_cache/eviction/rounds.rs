//! When what is left of a cache is to come together ([`super::gather`]), and how far that has come.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// A round begins when so large a part of what was held has gone.
const PART: usize = 6;
/// No shard is left: no round is under way.
const OVER: usize = usize::MAX;

/// How far the round has come.
pub struct Gathering {
    /// The most that was held since the last round began, bytes.
    most: AtomicUsize,
    /// The shard that comes next.
    next: AtomicUsize,
    /// The cache is the parent's, in a forked child.
    is_inherited: AtomicBool,
}

impl Gathering {
    /// None was begun.
    pub const fn new() -> Self {
        Self { most: AtomicUsize::new(0), next: AtomicUsize::new(OVER), is_inherited: AtomicBool::new(false) }
    }

    /// What was held before an eviction, and is now: begins a round where it is due.
    pub fn note(&self, before: usize, now: usize) {
        let most = self.most.fetch_max(before, Relaxed).max(before);
        if now <= most - most / PART {
            self.most.store(now, Relaxed);
            self.next.store(0, Relaxed);
        }
    }

    /// The shard that is to be gone through now, of so many.
    pub fn take(&self, shards: usize) -> Option<usize> {
        let taken = self.next.fetch_update(Relaxed, Relaxed, |at| (at < shards).then(|| at + 1));
        taken.ok()
    }

    /// Whether the cache is the parent's, in a forked child.
    pub fn is_inherited(&self) -> bool {
        self.is_inherited.load(Relaxed)
    }

    /// In a forked child: nothing moves. Its pages are its parent's too, so none would become free, and each write copies one.
    pub fn inherit(&self) {
        self.is_inherited.store(true, Relaxed);
    }
}
