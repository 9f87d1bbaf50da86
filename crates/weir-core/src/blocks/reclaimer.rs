//! Answers to what reclaim and the figures ask of blocks.

use super::block::Kept;
use super::mapped::Mapped;
use super::table::{Blocks, KEPT};
use crate::base::cause::Cause;
use crate::base::fault::Fault;
use crate::base::run::Run;
use crate::base::time::{Nanos, Time};
use crate::base::units::{Bytes, PAGEBLOCK};
use crate::pages::figures::{MEASURED, resident_bytes};
use crate::pages::report::releaser::event;
use crate::platform::Platform;
use crate::platform::lock::RankTurn;
use crate::policy::refault::{span, stamp};
use crate::reclaim::events::horizon;
use crate::reclaim::{
    Audit, Audited, Cushion, Ended, Figures, Freeze, Goal, Measured, Reclaimable, Reclaimed, Step, Steps, Usage,
};
use crate::telemetry::stats;
use crate::telemetry::trace::{Event, Kind, Place};

impl<P: Platform> Mapped<'_, P> {
    /// What `goal` leaves of retained blocks, of what is resident.
    fn retain(&self, goal: &Goal) -> Bytes {
        let blocks = self.settled();
        let left = if goal.row().cushion == Cushion::Peak { blocks.wanted_again() } else { Bytes::ZERO };
        left.max(blocks.idle.saturating_sub(goal.bytes))
    }

    /// Unmaps the kept blocks that `next` names; returns what of them was resident.
    fn unmap_while(&self, cause: Cause, next: impl Fn(&mut Blocks) -> Option<Kept>) -> Bytes {
        let (bytes, blocks, ns) = self.unmap_those(cause, next);
        if blocks > 0 {
            let (stats, end) = (self.pages.platform.stats(), self.pages.platform.now());
            let event = event(Place::Normal, 0, cause, Kind::Mapped, blocks);
            stats.trace.record(&Event { end: end.0, bytes: bytes.0 as u64, ns: ns.0, ..event });
            stats::add(&stats.reports, 1);
            stats::add(&stats.report_ns, ns.0);
            stats.release_times.note(ns.0);
            let (at, horizon) = (stamp(end), span(horizon(self.pages.platform.tunables())));
            let recent = &mut self.lock().recent;
            recent.reported(bytes.pages_down(), at, cause == Cause::Idle, horizon);
        }
        bytes
    }

    /// Unmaps the kept blocks that `next` names, without a record in the trace; returns what was resident, the number of blocks and the time.
    pub(super) fn unmap_those(
        &self,
        cause: Cause,
        next: impl Fn(&mut Blocks) -> Option<Kept>,
    ) -> (Bytes, usize, Nanos) {
        let (mut bytes, mut blocks, mut begin) = (Bytes::ZERO, 0, Time::ZERO);
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
            return (Bytes::ZERO, 0, Nanos::ZERO);
        }
        stats::add(&self.pages.platform.stats().given_back[cause as usize], bytes.0 as u64);
        (bytes, blocks, self.pages.platform.now() - begin)
    }
}

impl<P: Platform> Reclaimable for Mapped<'_, P> {
    fn steps(&self) -> Steps {
        Steps::of(&[Step::Retained])
    }

    fn count(&self, goal: &Goal) -> Bytes {
        let keep = self.retain(&Goal { bytes: Bytes::MAX, ..*goal });
        self.lock().idle.saturating_sub(keep)
    }

    fn scan(&self, _step: Step, goal: &Goal) -> Reclaimed {
        let keep = self.retain(goal);
        Reclaimed::released(self.unmap_while(goal.cause, |blocks| blocks.drop_above(keep)))
    }

    fn end_window(&self, ended: Ended) {
        let mut blocks = self.settled();
        if ended.first_quiet {
            // The background thread may sleep from now on. It is woken by what is freed, so how much that is has to be known: a
            // program may fill its blocks meanwhile.
            blocks.surprises = blocks.surprises.wrapping_add(1);
            self.tell_surprises(&blocks);
        }
        blocks.roll(ended);
    }
}

// SAFETY: it has one lock.
unsafe impl<P: Platform> Freeze<P> for Mapped<'_, P> {
    fn freeze(&self, turn: &RankTurn<'_, P>) {
        turn.lock(&self.blocks.table);
    }
}

impl<P: Platform> Audited for Mapped<'_, P> {
    fn audit(&self, audit: &mut Audit) -> Result<(), Fault> {
        audit.mapped = self.count();
        Ok(())
    }
}

// Where the memory of blocks mapped on their own is.

/// Blocks that are looked at in one go.
const AT_A_TIME: usize = 32;

/// A walk over all blocks in use, which may stop after any few of them. The walk remembers where it goes on, and what it has
/// found by then.
#[derive(Debug, Default)]
pub(crate) struct BlocksWalk {
    /// The table as it was walked over: in another one a block has another place.
    table: Run,
    /// Slots that are done.
    slots: usize,
    /// Bytes of the blocks.
    live: usize,
    /// Bytes of the blocks that are not resident.
    untouched: usize,
    /// The platform could not say what is resident of one of them.
    is_blind: bool,
}

impl<P: Platform> Mapped<'_, P> {
    /// Walks on over blocks of at most `looks` pageblocks, and counts them down; whether the walk is done. The last block
    /// may take more than are left: [`MEASURED`] bytes of it are looked at, at most.
    pub(crate) fn walk_blocks(&self, walk: &mut BlocksWalk, looks: &mut usize) -> bool {
        let mut runs = [Run::default(); AT_A_TIME];
        while *looks > 0 {
            let blocks = self.settled();
            let table = blocks.memory();
            if (table.addr, table.len) != (walk.table.addr, walk.table.len) {
                // It has grown meanwhile.
                *walk = BlocksWalk { table, ..BlocksWalk::default() };
            }
            let runs = &mut runs[..(*looks / (MEASURED / PAGEBLOCK)).clamp(1, AT_A_TIME)];
            let n = blocks.runs_from(&mut walk.slots, runs);
            drop(blocks);
            for &run in &runs[..n] {
                let resident = resident_bytes(&self.pages.platform, run);
                walk.is_blind |= resident.is_none();
                walk.live += run.len;
                walk.untouched += run.len - resident.unwrap_or(run.len);
                *looks = looks.saturating_sub(run.len.min(MEASURED).div_ceil(PAGEBLOCK));
            }
            if n < runs.len() {
                return true;
            }
        }
        false
    }

    /// Adds what a whole walk has found of blocks in use, and those that are retained.
    pub(crate) fn add_blocks_usage(&self, walk: &BlocksWalk, usage: &mut Usage) {
        let platform = &self.pages.platform;
        usage.live += walk.live;
        // Where the platform cannot say what is resident: what earlier looks found.
        usage.untouched += walk.untouched + if walk.is_blind { self.lock().untouched.0 } else { 0 };
        let mut retained = [Kept::default(); KEPT];
        let n = self.settled().copy_kept(&mut retained);
        let resident = |kept: &Kept| resident_bytes(platform, kept.block.run).unwrap_or(kept.resident.0);
        usage.idle += retained[..n].iter().map(resident).sum::<usize>();
    }
}

impl<P: Platform> Measured for Mapped<'_, P> {
    fn publish(&self, figures: &mut Figures, waits: bool) {
        let blocks = if waits { Some(self.settled()) } else { self.try_settled() };
        match blocks {
            Some(mut blocks) => {
                self.count_pairs_in(&mut blocks);
                figures.live += blocks.bytes;
                figures.idle += blocks.idle;
            }
            None => figures.is_partial = true,
        }
    }

    /// Resident bytes of the table, and of the pages for blocks that are lent.
    fn metadata(&self) -> usize {
        let table = self.lock().memory();
        resident_bytes(&self.pages.platform, table).unwrap_or(table.len) + self.lending_bytes()
    }
}
