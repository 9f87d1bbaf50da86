//! Huge pages behind the heap, watched over time: those in little use are split, those that the kernel filled up are found.

pub mod khugepaged;
pub mod sparse;

use core::sync::atomic::AtomicU32;

use crate::caches::Caches;
use crate::platform::Platform;
use crate::reclaim::{Figures, Goal, Kind, Reclaimable, Reclaimed, Step};
use sparse::Looks;

/// Pageblocks looked at for whether the kernel filled them up: in a calm window (khugepaged itself goes through 8 in 10 s
/// by default), and under pressure (about 2 us each).
const FILLED_CALM: usize = 16;
/// See above.
const FILLED_PRESSURE: usize = 1024;

/// What is remembered of them.
pub struct HugePages {
    looks: Looks,
    /// Where the next search for filled pageblocks begins.
    filled_from: AtomicU32,
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
    state: &'a HugePages,
    caches: &'a Caches<P>,
}

impl<P: Platform> Reclaimable for Watch<'_, P> {
    fn count(&self, _goal: &Goal) -> usize {
        // What is free behind huge pages is counted where it is free.
        0
    }

    fn scan(&self, step: Step, goal: &Goal) -> Reclaimed {
        Reclaimed::released(match (step, goal.kind) {
            (Step::Filled, Kind::Calm { .. }) => self.report_filled(goal, FILLED_CALM),
            (Step::Filled, _) => self.report_filled(goal, FILLED_PRESSURE),
            (Step::Sparse, Kind::Calm { quiet, .. }) => self.report_sparse(goal, quiet),
            _ => 0,
        })
    }

    fn freeze(&self, _rank: u32) {}

    unsafe fn thaw(&self, _rank: u32) {}

    fn publish(&self, _figures: &mut Figures, _waits: bool) {}
}
