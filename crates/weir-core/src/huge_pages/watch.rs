//! The watch over a heap's huge pages, and what it remembers.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::caches::Caches;
use crate::platform::Platform;

/// When to look, and how often yet.
pub(crate) struct Looks {
    /// In a quiet window, and in any other.
    pub(super) next: [AtomicU64; 2],
    pub(super) left: AtomicU32,
    /// When slow paths are to wake a balancer that sleeps, for khugepaged may have come by; 0: not.
    pub(super) wake_at: AtomicU64,
}

impl Looks {
    pub(crate) const fn new() -> Self {
        Self { next: [const { AtomicU64::new(0) }; 2], left: AtomicU32::new(0), wake_at: AtomicU64::new(0) }
    }

    /// Whether slow paths are to look at the clock.
    #[inline]
    pub(crate) fn wakes(&self) -> bool {
        self.wake_at.load(Relaxed) > 0
    }
}

/// What is remembered of them.
pub struct HugePages {
    pub(super) looks: Looks,
    /// Where the next search for filled pageblocks begins.
    pub(super) filled_from: AtomicU32,
}

impl HugePages {
    /// Nothing seen yet.
    pub(crate) const fn new() -> Self {
        Self { looks: Looks::new(), filled_from: AtomicU32::new(0) }
    }

    /// They, in the caches and pages of a heap.
    pub(crate) fn on<'a, P: Platform>(&'a self, caches: &'a Caches<P>) -> Watch<'a, P> {
        Watch { state: self, caches }
    }

    /// Whether slow paths are to look at the clock.
    #[inline]
    pub(crate) fn wakes(&self) -> bool {
        self.looks.wakes()
    }
}

/// The watch over a heap's huge pages.
pub(crate) struct Watch<'a, P> {
    pub(super) state: &'a HugePages,
    pub(super) caches: &'a Caches<P>,
}
