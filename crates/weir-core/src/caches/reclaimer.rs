//! Effect of each goal of reclaim on object caches.
//!
//! | goal | depots | CPUs' buckets | ceilings |
//! |---|---|---|---|
//! | a calm window | to the working set, and by what lay unused in it; to nothing, in the first quiet one | of caches idle for `cache_idle_windows`; all, in the first quiet one | |
//! | pressure | the same at once; stalest first, warm ones last | of idle caches, and of runs | halved, where there was too much |
//! | severe pressure, once in `severe_interval_ms` | to nothing | all | all half of the way to the least |
//! | `malloc_trim` | to nothing | all | |
//! | an allocation short of memory | to nothing, until it is served | of runs | |
//! | NORMAL is low | stalest first, down to the working set; then all | of idle caches, and of runs | |
//! | a program at rest | | of idle caches, and of runs | |

use super::cache::Cache;
use super::depot::trim::Age;
use super::heap_caches::Caches;
use super::slab::lists::Pass;
use crate::base::units::Bytes;
use crate::platform::Platform;
use crate::platform::lock::RankTurn;
use crate::reclaim::{Drains, Ended, Freeze, Goal, Reclaimable, Reclaimed, Step, Steps};

/// Bucket shells (528 bytes each) that pressure leaves for depots to go on with: at the severe level no memory is taken
/// for others. They are for 8,192 objects, a ninth of what all depots of malloc's classes hold at most.
const SHELLS_UNDER_PRESSURE: usize = 128;

impl<P: Platform> Caches<P> {
    /// Takes the step. Its stack is not there for other steps, whatever the compiler would put together.
    #[inline(never)]
    fn drain(&self, goal: &Goal) -> Bytes {
        match goal.row().drains {
            Drains::AllAndSink => self.sink_and_drain(goal.turn),
            Drains::All => self.drain_all(goal.turn) + self.drain_idle(goal.now, goal.turn),
            Drains::IdleAndRuns => self.drain_runs(goal.turn) + self.drain_idle(goal.now, goal.turn),
            Drains::Idle => self.drain_idle(goal.now, goal.turn),
            Drains::Runs => self.drain_runs(goal.turn),
        }
    }
}

/// Whether a goal takes from stale and warm caches at once, the stalest first all the same.
fn takes_all_ages(goal: &Goal) -> bool {
    goal.empties_caches() || goal.is_calm()
}

impl<P: Platform> Reclaimable for Caches<P> {
    fn steps(&self) -> Steps {
        use Step::{Buckets, CachesAgain, Metadata, Moves, SlabPages, StaleCaches, WarmCaches};
        Steps::of(&[Buckets, StaleCaches, WarmCaches, Moves, CachesAgain, SlabPages, Metadata])
    }

    fn count(&self, goal: &Goal) -> Bytes {
        self.surplus(goal)
    }

    fn scan(&self, step: Step, goal: &Goal) -> Reclaimed {
        let moved = match step {
            Step::Buckets => self.drain(goal),
            Step::StaleCaches => self.trim(if takes_all_ages(goal) { Age::Any } else { Age::Stale }, goal),
            Step::CachesAgain => {
                // CPUs' buckets stay as they are. A drained bucket gives back its pages, and the thread that frees the next object
                // touches them anew. For that the kernel puts a task to sleep for up to 2 s where its group is above
                // `memory.high`.
                self.trim(Age::Any, goal)
            }
            Step::Moves => {
                self.wish_moves();
                Bytes::ZERO
            }
            Step::WarmCaches if !takes_all_ages(goal) => self.trim(Age::Warm, goal),
            Step::Metadata if goal.is_calm() => self.release_stale_shells(),
            Step::Metadata => self.release_shells(if goal.is_pressure() { SHELLS_UNDER_PRESSURE } else { 0 }),
            _ => Bytes::ZERO,
        };
        let released = match step {
            Step::SlabPages => {
                let pass = goal.ended.map_or(Pass::All, Pass::Changed);
                let nodes = goal.node.map_or(0..self.pages.nodes.count(), |node| node..node + 1);
                nodes.map(|node| self.report_slabs_of(node, goal, pass)).sum()
            }
            _ => Bytes::ZERO,
        };
        Reclaimed::released(released) + Reclaimed::moved(moved)
    }

    fn end_window(&self, _ended: Ended) {
        for cache in self.reclaimable().map(|number| self.table.get(number)) {
            cache.tuning.end_window();
            cache.domains().for_each(|domain| domain.depot.lock(&self.pages.platform).points.end_window());
        }
    }
}

// SAFETY: no cache and no domain of one comes while the table's lock is held, of a lower rank than theirs.
unsafe impl<P: Platform> Freeze<P> for Caches<P> {
    fn freeze(&self, turn: &RankTurn<'_, P>) {
        let domains = || self.table.iter().flat_map(Cache::domains);
        self.cpu.freeze(turn);
        self.table.freeze(turn);
        turn.lock(&self.idle);
        turn.locks(|| domains().map(|domain| &domain.depot));
        turn.locks(|| domains().map(|domain| &domain.slabs));
        turn.lock(&self.stash);
    }
}
