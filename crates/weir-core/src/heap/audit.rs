//! The audit of a whole heap: for tests, and for a program that doubts its heap. It walks everything and changes nothing.

use super::Heap;
use crate::base::fault::Fault;
use crate::platform::{Platform, rank};
use crate::reclaim::{Audit, Reclaimable};

impl<P: Platform> Heap<P> {
    /// Checks the whole heap. To be called while no other thread uses it: what a thread works on counts as held by the
    /// program, or is found to be missing.
    pub fn audit(&self) -> Result<Audit, Fault> {
        let mut audit = Audit::default();
        self.pages().freeze(rank::BATCH);
        let right = self.with_reclaimables(|all| all.iter().try_for_each(|part| part.audit(&mut audit)));
        // SAFETY: this thread took the locks of this rank above, by `freeze`, and no others of it since.
        unsafe { self.pages().thaw(rank::BATCH) };
        right.map(|()| audit)
    }

    /// How often a pageblock was looked at so far: the steps of slow paths, for tests of how they grow.
    #[cfg(debug_assertions)]
    pub fn pageblock_visits(&self) -> usize {
        use core::sync::atomic::Ordering::Relaxed;
        [&self.pages().normal, &self.pages().low].iter().map(|window| window.visits.load(Relaxed)).sum()
    }
}
