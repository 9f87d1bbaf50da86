//! What reclaim asks of the watch.

use super::watch::Watch;
use crate::platform::Platform;
use crate::reclaim::{Goal, Reclaimable, Reclaimed, Step};

/// Pageblocks looked at for whether the kernel filled them up: in a calm window (khugepaged itself goes through 8 in 10 s
/// by default), and under pressure (about 2 us each).
const FILLED_CALM: usize = 16;
/// See above.
const FILLED_PRESSURE: usize = 1024;

impl<P: Platform> Reclaimable for Watch<'_, P> {
    fn steps(&self) -> &'static [Step] {
        &[Step::Filled, Step::Sparse]
    }

    fn count(&self, _goal: &Goal) -> usize {
        // What is free behind huge pages is counted where it is free.
        0
    }

    fn scan(&self, step: Step, goal: &Goal) -> Reclaimed {
        Reclaimed::released(match (step, goal.ended) {
            (Step::Filled, Some(_)) => self.report_filled(goal, FILLED_CALM),
            (Step::Filled, None) => self.report_filled(goal, FILLED_PRESSURE),
            (Step::Sparse, Some(ended)) => self.report_sparse(goal, ended.quiet),
            _ => 0,
        })
    }
}
