//! The reporter: free pages are released to what is below, in small isolated batches.
//!
//! # The protocol
//!
//! Under the zone lock at most [`BATCH`] pageblocks are *isolated*: their free backed pages stop being free, so that they cannot
//! be allocated. The lock is dropped, and the platform releases them in as few calls as it can. Then the lock is taken again and
//! the pages are free once more. Those of them that the platform took are marked reported.
//!
//! The interleaving this excludes: a page is read as free, an allocation takes it and the program writes to it. Then the release
//! wipes it. Isolated pages cannot be taken. Isolation never makes an allocation fail, as one that finds nothing else grows the
//! zone. A fork waits for the batches in flight, one a node at most ([`super::node::Node`] has its lock). So no child is born
//! with pages isolated for good. The thread that switches reports off waits for them too
//! ([`crate::heap::reclaim::Reclaim::set_reporting`]): each batch looks at the switch under its lock.
//!
//! # What is refused
//!
//! What is refused (`releaser`) stays as it was, on a list apart, so that the others are not held up. It is tried
//! again after it was handed out, or under pressure.

mod descriptions;
pub(crate) mod releaser;
pub(crate) mod reporter;

use super::node::{BATCH, Batch, Isolated};
use super::page_set::PageSet;
use super::window::Window;
use super::zone::FreeAreas;
use super::zone::locked::Zone;
use crate::base::backing::Backing;
use crate::base::run::Run;
use crate::base::units::{BlockNo, Bytes, PAGEBLOCK, Pages};
use crate::base::zone_class::ZoneClass;
use crate::platform::{Host, Platform};
use crate::reclaim::Goal;
use crate::reclaim::events::horizon;
use crate::telemetry::stats;
use crate::telemetry::trace::{Event, Kind, Place};
use releaser::{RUNS, Releaser, event};

/// A zone, and all that a report of it needs.
pub(crate) struct ReportSite<'a, P: Platform, B: Host + ?Sized> {
    pub(crate) platform: &'a P,
    pub(crate) below: &'a B,
    pub(crate) in_flight: &'a Batch,
    pub(crate) window: &'a Window,
    pub(crate) zone: &'a Zone,
    pub(crate) class: ZoneClass,
    pub(crate) place: Place,
    pub(crate) number: u16,
}

impl<P: Platform, B: Host + ?Sized> ReportSite<'_, P, B> {
    /// Reports whole free pageblocks until at most `keep` idle pages are left; returns bytes.
    pub(crate) fn report_whole(&self, goal: &Goal, keep: Pages) -> Bytes {
        self.report_blocks(goal, Kind::Whole, keep, |zone| zone.whole_idle())
    }

    /// Reports free runs of partly free pageblocks, those unchanged for longest first, until at most `keep` idle pages are left.
    pub(crate) fn report_runs(&self, goal: &Goal, keep: Pages) -> Bytes {
        if self.below.release_unit() == PAGEBLOCK {
            return Bytes::ZERO;
        }
        let all = [Backing::Small, Backing::SparseHuge, Backing::Huge];
        let of = |&backing| self.report_blocks(goal, Kind::Runs, keep, |zone| zone.next_hint(backing));
        all[..=goal.row().splits as usize].iter().map(of).sum()
    }

    /// Reports the free pages of pageblock `block` alone.
    pub(crate) fn report_block(&self, goal: &Goal, block: BlockNo) -> Bytes {
        let has_idle = |zone: &FreeAreas| zone.has_idle(self.window, block).then_some(block);
        self.report_batch(goal, Kind::Runs, Pages(1), has_idle)
    }

    /// Reports the pageblocks that `next` names until at most `keep` idle pages are left in the zone.
    fn report_blocks(
        &self,
        goal: &Goal,
        kind: Kind,
        keep: Pages,
        next: impl Fn(&FreeAreas) -> Option<BlockNo>,
    ) -> Bytes {
        let mut bytes = Bytes::ZERO;
        // What is freed meanwhile waits for the next report, so that this one ends.
        let mut left = self.zone.lock(self.platform).idle.saturating_sub(keep);
        while !left.is_zero() {
            let got = self.report_batch(goal, kind, left, &next);
            bytes += got;
            left = left.saturating_sub(got.pages_down());
            if got.is_zero() {
                break;
            }
        }
        bytes
    }

    fn report_batch(
        &self,
        goal: &Goal,
        kind: Kind,
        limit: Pages,
        next: impl Fn(&FreeAreas) -> Option<BlockNo>,
    ) -> Bytes {
        let mut in_flight = self.in_flight.lock(self.platform);
        let tunables = self.platform.tunables();
        if tunables.report.get() == 0 {
            return Bytes::ZERO;
        }
        let Isolated { blocks: batch, kept, runs } = &mut *in_flight;
        let (mut n, mut pages) = (0, Pages::ZERO);
        let max = (tunables.report_batch.get() as usize).clamp(1, BATCH);
        let mut areas = self.zone.lock(self.platform);
        while n < max && pages < limit {
            let Some(block) = next(&areas) else { break };
            let idle = areas.isolate(self.window, block);
            batch[n] = (block, idle);
            (n, pages) = (n + 1, pages + idle.len());
        }
        drop(areas);
        if n == 0 {
            return Bytes::ZERO;
        }
        self.release_batch(goal, kind, &batch[..n], (kept, runs))
    }

    /// Releases what is isolated, and puts it back.
    fn release_batch(
        &self,
        goal: &Goal,
        kind: Kind,
        batch: &[(BlockNo, PageSet)],
        (kept, runs): (&mut [PageSet; BATCH], &mut [Run; RUNS]),
    ) -> Bytes {
        *kept = [PageSet::EMPTY; BATCH];
        let refused = |run: Run| {
            let page = self.window.page_of(run.addr).unwrap_or_default();
            let at = batch.iter().position(|&(block, _)| block == page.block());
            let first = page.in_block();
            at.into_iter().for_each(|i| kept[i].insert(first..first + Pages::in_bytes(run.len).0));
        };
        let mut releaser = Releaser::new(self.platform, self.below, goal.cause, runs, refused);
        for (block, set) in batch {
            for run in set.runs() {
                let addr = self.window.addr_of(block.page(run.start));
                releaser.add(Run { addr, len: Pages(run.len()).length() });
            }
        }
        let (event, how) = releaser.finish(self.event(goal, kind, batch.len()), horizon(self.platform.tunables()));
        let stats = self.platform.stats();
        stats::add(&stats.given_back[goal.cause as usize], event.bytes);
        let mut areas = self.zone.lock(self.platform);
        for ((block, set), kept) in batch.iter().zip(&*kept) {
            let gone = set.minus(kept);
            let huge = areas.put_back(self.window, *block, set, &gone, how);
            if huge && !gone.is_empty() {
                let whole = gone.len() == Pages::BLOCK;
                stats::add(if whole { &stats.huge_kept } else { &stats.huge_split }, 1);
            }
        }
        Bytes(event.bytes as usize)
    }

    fn event(&self, goal: &Goal, kind: Kind, blocks: usize) -> Event {
        event(self.place, self.number, goal.cause, kind, blocks)
    }
}

// Split huge pages are cooled: what is left of each is split for good. The kernel does not fill it up while it is not used.

/// Pageblocks gone over under one hold of a zone's lock.
const SLICE: u32 = 256;

impl<P: Platform, B: Host + ?Sized> ReportSite<'_, P, B> {
    /// Cools what was split of this zone since the last call.
    pub(crate) fn cool_split(&self) {
        if !self.zone.lock(self.platform).has_torn() {
            return;
        }
        for blocks in slices(self.window) {
            loop {
                let (mut torn, mut runs) = ([BlockNo(0); BATCH], [Run::default(); BATCH]);
                let n = self.zone.lock(self.platform).take_torn(self.window, blocks.clone(), &mut torn);
                for (run, block) in runs.iter_mut().zip(&torn[..n]) {
                    let addr = self.window.addr_of(block.first());
                    *run = Run { addr, len: PAGEBLOCK };
                }
                if n > 0 {
                    self.platform.cool(&runs[..n]);
                }
                if n < BATCH {
                    break;
                }
            }
        }
    }
}

/// All pageblocks of a window, a hold of a zone's lock at a time.
pub(crate) fn slices(window: &Window) -> impl Iterator<Item = core::ops::Range<BlockNo>> + use<> {
    let end = window.top().block();
    (0..end.0).step_by(SLICE as usize).map(move |from| BlockNo(from)..end.min(BlockNo(from + SLICE)))
}
