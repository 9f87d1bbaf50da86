//! Answers to what reclaim asks of pages: whole free pageblocks, free runs, and the metadata of both. Zones of the heap and a
//! program's own are treated alike, and take turns.

use crate::base::fault::Fault;
use crate::base::units::{Bytes, Pages};
use crate::base::zone_class::ZoneClass;
use crate::pages::heap_pages::HeapPages;
use crate::pages::node::BATCH;
use crate::pages::node::ZoneKind;
use crate::pages::report::{ReportSite, slices};
use crate::platform::lock::RankTurn;
use crate::platform::{Host, Platform};
use crate::reclaim::{
    Audit, Audited, Cushion, Ended, Figures, Freeze, Goal, Kind, Measured, Need, Reclaimable, Reclaimed, Step, Steps,
};
use core::sync::atomic::Ordering::Relaxed;

/// Free pages too few to be worth a report in calm times: one call costs about as much as 16 pages' refaults.
const WORTH_PAGES: Pages = Pages(16);

impl<P: Platform, B: Host + ?Sized> ReportSite<'_, P, B> {
    /// Idle pages that `goal` leaves to the zone.
    pub(crate) fn keep(&self, goal: &Goal) -> Pages {
        let huge = self.platform.huge_on_touch();
        let zone = self.zone.lock(self.platform);
        let left = match goal.row().cushion {
            Cushion::Peak => zone.wanted_again() + WORTH_PAGES,
            Cushion::Surplus => zone.idle - zone.surplus(huge).min(zone.idle),
            Cushion::Nothing => Pages::ZERO,
        };
        left.max(zone.idle.saturating_sub(goal.bytes.pages_down()))
    }

    /// What was released lazily is released anew by the steps that follow.
    #[cold]
    fn recall(&self) {
        if self.zone.lock(self.platform).has_lazy() {
            slices(self.window).for_each(|blocks| self.zone.lock(self.platform).recall(self.window, blocks));
        }
    }

    /// Whether what is idle here is what `goal` wants. The system's pool of huge pages gains memory that is in no limit but the
    /// hard one.
    fn helps(&self, goal: &Goal) -> bool {
        let is_for_normal = goal.row().need == Need::LowZone || goal.row().is_awaited;
        self.class != ZoneClass::Hugetlb || !is_for_normal
    }

    /// Idle pages that `goal` takes, however many it wants.
    fn count(&self, goal: &Goal) -> Pages {
        if !self.helps(goal) {
            return Pages::ZERO;
        }
        let idle = self.zone.lock(self.platform).releasable();
        idle.saturating_sub(self.keep(&Goal { bytes: Bytes::MAX, ..*goal }))
    }

    fn scan(&self, step: Step, goal: &Goal) -> Bytes {
        if !self.helps(goal) {
            return Bytes::ZERO;
        }
        // An allocation does not wait for a batch, which may release much more than it wants.
        if goal.row().is_awaited && self.in_flight.try_lock(self.platform).is_none() {
            return Bytes::ZERO;
        }
        match step {
            Step::Refused => {
                self.recall();
                self.zone.lock(self.platform).forgive(self.window, BATCH);
                Bytes::ZERO
            }
            Step::Blocks | Step::BlocksAgain => self.report_whole(goal, self.keep(goal)),
            Step::Runs => self.report_runs(goal, self.keep(goal)),
            Step::Cool => {
                self.cool_split();
                Bytes::ZERO
            }
            _ => Bytes::ZERO,
        }
    }
}

impl<P: Platform> HeapPages<P> {
    /// Under pressure each further NUMA node that has a batch's worth of idle pages, in whatever parts, also gets a worker of its
    /// own. Releasing them costs most on another node. The balancer goes through all nodes itself too, and finds done what
    /// workers did. So they may be late, or refused.
    fn wake_workers(&self, goal: &Goal) {
        for number in (1..self.nodes.count()).filter(|&number| self.siblings(number).all(|other| other > number)) {
            let idle = |node, kind| self.nodes.get(node).zone(kind).lock(&self.platform).idle;
            let of = |node| idle(node, ZoneKind::Normal) + idle(node, ZoneKind::Low32);
            if self.parts(number).map(of).sum::<Pages>() >= Pages::BLOCK * BATCH {
                let severe = goal.kind == Kind::Severe;
                self.platform.wake_node_worker(number, goal.cause, severe);
            }
        }
    }

    /// The first batch is released before any worker is made: above a limit where the kernel holds up who takes memory, that may
    /// take seconds.
    fn scan_blocks(&self, step: Step, goal: &Goal) -> Bytes {
        let mut bytes = Bytes::ZERO;
        if goal.is_pressure() && self.nodes.count() > 1 {
            let first = (Pages::BLOCK * BATCH).bytes().min(goal.bytes);
            bytes = self.scan_zones(step, &Goal { bytes: first, ..*goal });
            self.wake_workers(goal);
        }
        bytes + self.scan_zones(step, &Goal { bytes: goal.bytes.saturating_sub(bytes), ..*goal })
    }

    fn scan_zones(&self, step: Step, goal: &Goal) -> Bytes {
        let (nodes, mut bytes) = (self.nodes.count(), Bytes::ZERO);
        let left = |bytes| Goal { bytes: goal.bytes.saturating_sub(bytes), ..*goal };
        if let Some(node) = goal.node {
            let of = |node| ZoneKind::ALL.map(|kind| self.site(kind, node).scan(step, goal));
            return self.parts(node).flat_map(of).sum();
        }
        let own = |mut bytes: Bytes| {
            self.each_user_zone(|site| {
                let got = site.scan(step, &left(bytes));
                if site.class == ZoneClass::Hugetlb {
                    self.user.pool_bytes.fetch_add(got.0 as u64, Relaxed);
                }
                bytes += got;
                got
            })
        };
        // One place in the rotation is that of the program's zones.
        let places = ZoneKind::ALL.len() * nodes + 1;
        for i in 0..places {
            if bytes >= goal.bytes {
                break;
            }
            let at = (goal.turn + i) % places;
            bytes += match at.checked_sub(1) {
                None => own(bytes),
                Some(at) => self.site(ZoneKind::ALL[at / nodes], at % nodes).scan(step, &left(bytes)),
            };
        }
        bytes
    }
}

impl<P: Platform> Reclaimable for HeapPages<P> {
    fn steps(&self) -> Steps {
        use Step::{Blocks, BlocksAgain, Cool, Mappings, Metadata, OldMetadata, Refused, Runs};
        Steps::of(&[Refused, OldMetadata, Blocks, BlocksAgain, Runs, Cool, Metadata, Mappings])
    }

    fn count(&self, goal: &Goal) -> Bytes {
        let own = self.each_user_zone(|site| site.count(goal).bytes());
        self.sites().map(|site| site.count(goal).bytes()).sum::<Bytes>() + own
    }

    fn scan(&self, step: Step, goal: &Goal) -> Reclaimed {
        let bytes = match step {
            Step::Refused | Step::Runs | Step::Cool => self.scan_zones(step, goal),
            Step::Blocks | Step::BlocksAgain => self.scan_blocks(step, goal),
            // Nothing will be wanted soon of the free memory of a quiet program, nor of what describes it, and the next window may
            // be long.
            Step::Metadata | Step::Mappings if goal.ended.is_some_and(|ended| !ended.quiet) => Bytes::ZERO,
            Step::Mappings => {
                self.unmap_bare();
                Bytes::ZERO
            }
            Step::OldMetadata | Step::Metadata => {
                return Reclaimed::moved(self.sites().map(|site| site.release_descriptions()).sum());
            }
            _ => Bytes::ZERO,
        };
        Reclaimed::released(bytes)
    }

    fn end_window(&self, ended: Ended) {
        let roll = |zone: &crate::pages::zone::locked::Zone| {
            let mut zone = zone.lock(&self.platform);
            let used = zone.used;
            zone.peak.roll(used, ended.windows, ended.quiet);
        };
        self.sites().for_each(|site| roll(site.zone));
        self.each_user_zone(|site| {
            roll(site.zone);
            Bytes::ZERO
        });
    }
}

// SAFETY: no node is found while the first node's batch lock is held, and no zone of a program's comes or goes while the list's
// lock is: both are of a lower rank than those of the nodes' zones and of the program's.
unsafe impl<P: Platform> Freeze<P> for HeapPages<P> {
    fn freeze(&self, turn: &RankTurn<'_, P>) {
        self.nodes.freeze(turn);
        [&self.normal, &self.low].iter().for_each(|window| window.freeze(turn));
        turn.locks(|| self.sites().map(|site| site.zone.lock_of_rank()));
        self.user.freeze(turn);
    }
}

impl<P: Platform> Audited for HeapPages<P> {
    fn audit(&self, _audit: &mut Audit) -> Result<(), Fault> {
        // The heap's own zones are checked with the slabs and runs in them, by the caches.
        let zones = self.user.lock.lock(&self.platform);
        self.user.iter().try_for_each(|zone| zone.areas.lock(&self.platform).audit(&zone.window).map(drop))?;
        drop(zones);
        Ok(())
    }
}

impl<P: Platform> Measured for HeapPages<P> {
    fn publish(&self, figures: &mut Figures, waits: bool) {
        for site in self.sites() {
            let zone = if waits { Some(site.zone.lock(&self.platform)) } else { site.zone.try_lock(&self.platform) };
            match zone {
                Some(zone) => {
                    figures.idle += zone.idle.bytes();
                    figures.pages += zone.used.bytes();
                }
                None => figures.is_partial = true,
            }
        }
    }

    fn metadata(&self) -> usize {
        self.metadata_bytes()
    }
}
