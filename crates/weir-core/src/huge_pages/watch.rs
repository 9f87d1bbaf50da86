//! The watch over a heap's huge pages, what it remembers, and what reclaim asks of it.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::base::units::Bytes;
use crate::caches::Caches;
use crate::pages::report::slices;
use crate::platform::Platform;
use crate::reclaim::{Goal, Reclaimable, Reclaimed, Step, Steps};

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

/// Where the looks for what is full and still are, and when the next collapse may be.
pub(crate) struct Collapses {
    pub(super) from: AtomicU32,
    pub(super) next: AtomicU64,
    /// Pageblocks looked at one after another of which none is due, or may be after further looks.
    pub(super) settled: AtomicU32,
}

impl Collapses {
    pub(crate) const fn new() -> Self {
        Self { from: AtomicU32::new(0), next: AtomicU64::new(0), settled: AtomicU32::new(u32::MAX) }
    }
}

/// Memory of the watch over huge pages.
pub struct HugePages {
    pub(super) looks: Looks,
    /// Where the next search for filled pageblocks begins.
    pub(super) filled_from: AtomicU32,
    /// Where the next look at pageblocks that count as huge pages begins.
    pub(super) huge_from: AtomicU32,
    /// Where huge pages are put.
    pub(super) collapses: Collapses,
}

impl HugePages {
    /// Nothing seen yet.
    pub(crate) const fn new() -> Self {
        Self {
            looks: Looks::new(),
            filled_from: AtomicU32::new(0),
            huge_from: AtomicU32::new(0),
            collapses: Collapses::new(),
        }
    }

    /// The watch over the caches and pages of a heap.
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

// A program that switches huge pages off for itself while it runs, as redis does (`PR_SET_THP_DISABLE`).

impl<P: Platform> Watch<'_, P> {
    /// Memory comes in single pages from now on, and no pageblock counts as a huge page any more. Of one that is a huge page
    /// from before, the next report takes all that is free. The other way round, free pages that are not there would count as
    /// resident. Pages that are there would be kept together for a huge page's sake.
    pub(crate) fn forget_huge(&self) {
        self.caches.pages.platform.set_huge_on_touch(false);
        for site in self.caches.pages.sites() {
            for blocks in slices(site.window) {
                site.zone.lock(&self.caches.pages.platform).forget_huge(site.window, blocks, true);
            }
        }
        self.look_again();
    }
}

// What reclaim asks of the watch.

/// Pageblocks looked at in a calm window for whether the kernel filled them up, and a quarter as many for whether it gave them
/// single pages. The kernel's khugepaged goes through 8 in 10 s by default.
const FILLED_CALM: usize = 16;
/// Pageblocks looked at under pressure, at about 2 us each.
pub(super) const FILLED_PRESSURE: usize = 1024;

/// It counts nothing: what is free behind huge pages is counted where it is free.
impl<P: Platform> Reclaimable for Watch<'_, P> {
    fn steps(&self) -> Steps {
        Steps::of(&[Step::Filled, Step::Sparse])
    }

    fn scan(&self, step: Step, goal: &Goal) -> Reclaimed {
        Reclaimed::released(match (step, goal.ended) {
            (Step::Filled, Some(_)) => self.report_filled(goal, FILLED_CALM),
            (Step::Filled, None) => self.report_filled(goal, FILLED_PRESSURE),
            (Step::Sparse, Some(ended)) => self.report_sparse(goal, ended.quiet),
            _ => Bytes::ZERO,
        })
    }
}
