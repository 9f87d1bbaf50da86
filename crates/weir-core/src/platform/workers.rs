//! Threads that work beside the program's: the balancer's, one for each further NUMA node, and the finalizers'.

use super::diagnostics::Diagnostics;
use super::lock::RankTurn;
use super::wait::Wait;
use crate::base::cause::Cause;
use crate::telemetry::stats::Stats;

/// Wakes workers. None of these calls waits for what the worker does.
pub trait Workers: Diagnostics {
    /// Wakes the thread that runs the balancer: there is something to do.
    fn wake_balancer(&self);
    /// Pages became resident: a heap may be worth a thread that frees nothing, as others look into the process by it. Called
    /// under no lock of the engine's.
    fn heap_has_grown(&self) {}
    /// Whether a thread beside the program's runs the balancer; where none does, slow paths run it.
    fn has_balancer_thread(&self) -> bool {
        self.tunables().background.get() != 0
    }
    /// Has a thread on the NUMA node of which `node` is the first part call [`crate::heap::reclaim::Reclaim::balance_node`], where
    /// there can be one.
    fn wake_node_worker(&self, node: usize, cause: Cause, severe: bool) {
        let _ = (node, cause, severe);
    }
    /// Has a thread that may run a program's own code call [`crate::heap::user_caches::UserCaches::run_finalizers`], and
    /// [`crate::heap::user_caches::UserCaches::run_moves`].
    fn wake_finalizer(&self) {}
    /// The last chance to free something: an allocation of `bytes` would exceed `hard_limit`, and is about to fail. All that can
    /// be reclaimed has been. Called on the allocating thread, under no lock of the engine's; it may allocate. Returns whether
    /// another try is worth it.
    fn hard_limit_reached(&self, bytes: usize) -> bool {
        let _ = bytes;
        false
    }
    /// Whether that would call the program.
    fn hears_hard_limit(&self) -> bool {
        false
    }
    /// Whether the calling thread may wait for the balancer: not if it is the balancer's.
    fn may_wait(&self) -> bool {
        true
    }
    /// Whether the calling thread is the only one that can be in the heap, until [`Workers::is_not_alone`]: the process has no other
    /// but the platform's own, which the platform holds up. A `fork` needs to take no lock then.
    fn is_alone(&self) -> bool {
        false
    }
    /// Lets the platform's own threads go on, in the parent, or in the child, which has none.
    fn is_not_alone(&self) {}
    /// Passes the locks that come before all of the heap's ([`super::rank`]) to the turn of a rank, for a `fork`: the same ones to
    /// both turns of a rank.
    fn freeze_evictable_caches(&self, turn: &RankTurn<'_, Self>)
    where
        Self: Sized + Wait,
    {
        let _ = turn;
    }
    /// Calls `each` with the page of each other process that lives, hears of the same pressure as this one, and may be read. These
    /// processes write to their pages meanwhile. Where there are too many, returns about how many more there are.
    fn neighbours(&self, each: &mut dyn FnMut(&Stats)) -> usize {
        let _ = each;
        0
    }
    /// Bytes that caches of the program's evicted so far and that lie in another allocator's memory.
    fn evicted_elsewhere(&self) -> u64 {
        0
    }
    /// Bytes that the process has resident, whoever manages them, if that is known. A few microseconds.
    fn process_resident(&self) -> Option<u64> {
        None
    }
}
