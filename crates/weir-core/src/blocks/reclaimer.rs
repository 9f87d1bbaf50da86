//! What reclaim asks of retained blocks.

use super::block::Kept;
use super::mapped::Mapped;
use super::table::Blocks;
use crate::base::cause::Cause;
use crate::base::fault::Fault;
use crate::base::units::PAGE;
use crate::pages::releaser::event;
use crate::platform::{Platform, rank};
use crate::policy::refault::stamp;
use crate::reclaim::events::horizon;
use crate::reclaim::{Audit, Audited, Cushion, Ended, Figures, Freeze, Goal, Measured, Reclaimable, Reclaimed, Step};
use crate::telemetry::stats;
use crate::telemetry::trace::{Event, Kind, Place};

impl<P: Platform> Mapped<'_, P> {
    /// Resident bytes of retained blocks that `goal` leaves.
    fn retain(&self, goal: &Goal) -> usize {
        let blocks = self.lock();
        let left = if goal.row().cushion == Cushion::Peak { blocks.wanted_again() } else { 0 };
        left.max(blocks.idle.saturating_sub(goal.bytes))
    }

    /// Unmaps the kept blocks that `next` names; returns the bytes of them that were resident.
    fn unmap_while(&self, cause: Cause, next: impl Fn(&mut Blocks) -> Option<Kept>) -> usize {
        let (bytes, blocks, ns) = self.unmap_those(cause, next);
        if blocks > 0 {
            let (stats, end) = (self.pages.platform.stats(), self.pages.platform.now());
            let event = event(Place::Normal, 0, cause, Kind::Mapped, blocks);
            stats.trace.record(&Event { end, bytes: bytes as u64, ns, ..event });
            let (at, horizon) = (stamp(end), stamp(horizon(self.pages.platform.tunables())));
            let recent = &mut self.lock().recent;
            recent.reported(bytes / PAGE, at, cause == Cause::Idle, horizon);
        }
        bytes
    }

    /// The same unrecorded; returns resident bytes, blocks and ns.
    pub(super) fn unmap_those(&self, cause: Cause, next: impl Fn(&mut Blocks) -> Option<Kept>) -> (usize, usize, u64) {
        let (mut bytes, mut blocks, mut begin) = (0, 0, 0);
        loop {
            let gone = next(&mut self.lock());
            let Some(kept) = gone else { break };
            if blocks == 0 {
                begin = self.pages.platform.now();
            }
            self.unmap_kept(kept);
            (bytes, blocks) = (bytes + kept.resident, blocks + 1);
        }
        if blocks == 0 {
            return (0, 0, 0);
        }
        stats::add(&self.pages.platform.stats().given_back[cause as usize], bytes as u64);
        (bytes, blocks, self.pages.platform.now() - begin)
    }
}

impl<P: Platform> Reclaimable for Mapped<'_, P> {
    fn steps(&self) -> &'static [Step] {
        &[Step::Retained]
    }

    fn count(&self, goal: &Goal) -> usize {
        let keep = self.retain(&Goal { bytes: usize::MAX, ..*goal });
        self.lock().idle.saturating_sub(keep)
    }

    fn scan(&self, _step: Step, goal: &Goal) -> Reclaimed {
        let keep = self.retain(goal);
        Reclaimed::released(self.unmap_while(goal.cause, |blocks| blocks.drop_above(keep)))
    }

    fn end_window(&self, ended: Ended) {
        self.lock().roll(ended);
    }
}

impl<P: Platform> Freeze for Mapped<'_, P> {
    fn freeze(&self, rank: u32) {
        if rank == rank::BLOCKS {
            self.blocks.table.acquire(&self.pages.platform);
        }
    }

    unsafe fn thaw(&self, rank: u32) {
        if rank == rank::BLOCKS {
            // SAFETY: the table's lock was taken by `freeze` on this thread, or on its parent's copy of it; that made no guard.
            unsafe { self.blocks.table.release(&self.pages.platform) }
        }
    }
}

impl<P: Platform> Audited for Mapped<'_, P> {
    fn audit(&self, audit: &mut Audit) -> Result<(), Fault> {
        audit.mapped = self.count();
        Ok(())
    }
}

impl<P: Platform> Measured for Mapped<'_, P> {
    fn publish(&self, figures: &mut Figures, waits: bool) {
        self.publish_figures(figures, waits);
    }

    fn metadata(&self) -> usize {
        self.metadata_bytes()
    }
}
