//! The heap as the node balancer sees it: the figures of its zones, and reclaim for one of them.
//!
//! Limits are those of a process, not of a NUMA node. So the zones of all NUMA nodes count together here, and there is one
//! balancer. Releasing what is free of further nodes has workers of its own ([`Reclaim::balance_node`]).

use super::Reclaim;
use crate::base::cause::Cause;
use crate::base::level::Level;
use crate::base::time::{Nanos, Time};
use crate::base::units::{Bytes, MAX_ORDER, Pages};
use crate::base::zone_class::{ZoneClass, ZoneList};
use crate::pages::figures::ClassTotals;
use crate::platform::Platform;
use crate::policy::watermarks::{Policy, Zone, is_zone_above};
use crate::reclaim::budget::Room;
use crate::reclaim::node_balancer::{Node, Part, Scanned, ZONES, ZoneScan};
use crate::reclaim::{Goal, Kind, Side};
use crate::telemetry::stats;

/// A zone of `managed` pages, `free` of them free.
fn zone(managed: Pages, free: Pages, largest: Option<u32>, scale: usize) -> Zone {
    Zone::new(managed, free.min(managed), largest.filter(|_| !free.is_zero()), scale)
}

/// Whether a zone lacks more than another one, or has less to spare; an unlimited one has most.
fn is_nearer(hard: &Zone, budget: &Zone) -> bool {
    let spare = |zone: &Zone| zone.free.0 as isize - zone.marks.high.0 as isize;
    budget.managed.is_zero() || spare(hard) < spare(budget)
}

/// An elastic zone: any block that fits into what is free can be had, as addresses are plentiful.
fn elastic(room: Room, scale: usize) -> Zone {
    // A limit of less than a page is one all the same; a zone of no pages would have none.
    let (managed, free) = (Pages::to_hold(room.capacity as usize), Pages::in_bytes(room.free() as usize));
    zone(managed, free, free.0.checked_ilog2().map(|order| order.min(MAX_ORDER - 1)), scale)
}

impl<P: Platform> Reclaim<'_, P> {
    /// NORMAL: what may still become resident below the tightest limit, the hard limit included.
    pub(crate) fn normal_zone(&self) -> Zone {
        let (budget, hard) = self.budget_and_hard_limit();
        hard.filter(|hard| is_nearer(hard, &budget)).unwrap_or(budget)
    }

    /// What NORMAL, as it was just now, lacks to be at min. What exceeds the limit is not in its free pages.
    pub(crate) fn missing(&self, normal: &Zone) -> Bytes {
        let room = self.budget_room();
        let lacks = |free: Bytes| normal.marks.min.bytes().saturating_sub(free);
        let free = lacks(normal.free.bytes());
        if room.capacity == 0 {
            // No limit is known but the hard one.
            return free;
        }
        free.max(Bytes(room.used.saturating_sub(room.capacity) as usize) + lacks(Bytes(room.free() as usize)))
    }

    /// Whether that is the process's own hard limit, which no other process shares.
    pub(super) fn is_hard_limit_nearest(&self) -> bool {
        let (budget, hard) = self.budget_and_hard_limit();
        hard.is_some_and(|hard| is_nearer(&hard, &budget))
    }

    fn budget_and_hard_limit(&self) -> (Zone, Option<Zone>) {
        let scale = self.heap.platform().tunables().watermark_scale.get() as usize;
        let used = |limit: Bytes| limit.saturating_sub(self.heap.pages().hard_room());
        let room = |limit: Bytes| Room::own(limit.0 as u64, used(limit).0 as u64);
        let hard = self.heap.pages().hard_limit().map(|limit| elastic(room(limit), scale));
        (elastic(self.budget_room(), scale), hard)
    }

    /// Whether so much may still become resident that who waits for memory does not wait for what this process holds.
    pub fn has_plenty(&self) -> bool {
        self.normal_zone().has_plenty()
    }

    /// Room below the tightest limit but the hard one.
    pub(crate) fn budget_room(&self) -> Room {
        self.heap.reclaim.budget.room(self.heap.pages().given_back())
    }

    /// What may still become resident below the tightest limit but the hard one; [`Bytes::MAX`] where none is known.
    pub(crate) fn budget_free(&self) -> Bytes {
        let room = self.budget_room();
        if room.capacity == 0 { Bytes::MAX } else { Bytes(room.free() as usize) }
    }

    /// Whether `bytes` more could become resident if the heap gave all that it holds.
    pub(crate) fn is_conceivable(&self, bytes: Bytes) -> bool {
        let room = self.budget_free().min(self.heap.pages().hard_room());
        bytes <= room.saturating_add(self.resident_pages().bytes())
    }

    /// Whether the zone below 4 GiB has nothing for requests of `order` that could have used NORMAL. The zone keeps a part of
    /// NORMAL's pages for others.
    pub(crate) fn keeps_low32(&self, order: u32) -> bool {
        let zones = self.heap.reclaim.node_balancer.view(self);
        let low = ZoneClass::Low32 as usize;
        zones[low].managed.is_zero() || !is_zone_above(&zones, low, order.max(1), ZoneList::Normal, |marks| marks.min)
    }

    /// Resident pages of the heap, about.
    pub(crate) fn resident_pages(&self) -> Pages {
        let gauges = &self.heap.pages().gauges;
        Pages::in_bytes((gauges.page_bytes.get() + gauges.mapped_bytes.get()) as usize)
    }

    /// The program's own zones of a class in which caches lie. Nothing can be reclaimed of others, and what is free there, or is
    /// not, says nothing of these.
    fn user_totals(&self, class: ZoneClass) -> ClassTotals {
        if !self.has_evictable(class) {
            return ClassTotals::default();
        }
        let totals = |has_caches: &dyn Fn(u64) -> bool| self.heap.pages().user_totals(class, has_caches);
        self.heap.callbacks.with_zones(self.heap.platform(), totals)
    }

    /// To compare with: what is resident now of all that the process holds; `None` where there is no cache in such zones.
    fn elsewhere(&self, zone: ZoneClass) -> Option<Elsewhere> {
        let has_caches = zone == ZoneClass::Normal && self.has_evictable(zone);
        let evicted = self.heap.platform().evicted_elsewhere();
        has_caches.then(|| Elsewhere { evicted, resident: self.heap.platform().process_resident().unwrap_or(0) })
    }
}

/// Bytes that caches had evicted into another allocator's memory, and those resident of the process, at one moment.
pub(crate) struct Elsewhere {
    evicted: u64,
    resident: u64,
}

impl Elsewhere {
    /// What was evicted since, and by how much the process became smaller. Nothing was, or it is not known: 0.
    fn until(&self, platform: &impl Platform) -> (Bytes, Bytes) {
        let evicted = platform.evicted_elsewhere().saturating_sub(self.evicted) as usize;
        let resident = if evicted > 0 { platform.process_resident() } else { None };
        (Bytes(evicted), Bytes(resident.map_or(0, |now| self.resident.saturating_sub(now)) as usize))
    }
}

impl<P: Platform> Node for Reclaim<'_, P> {
    fn zones(&self) -> [Zone; ZONES] {
        let (normal, pages) = (self.normal_zone(), self.heap.pages());
        let scale = self.heap.platform().tunables().watermark_scale.get() as usize;
        let zone = |of: ClassTotals| zone(of.pages, of.free, of.largest, scale);
        ZoneClass::ALL.map(|class| match class {
            ZoneClass::Low32 => {
                let low = zone(pages.low32_totals());
                // What becomes resident there counts against the budget as well.
                Zone { free: if normal.managed.is_zero() { low.free } else { low.free.min(normal.free) }, ..low }
            }
            ZoneClass::Normal => normal,
            ZoneClass::Pinned | ZoneClass::Hugetlb => zone(self.user_totals(class)),
        })
    }

    fn policy(&self) -> Policy {
        Policy::of_number(self.heap.platform().tunables().balance_policy.get())
    }

    fn now(&self) -> Time {
        self.heap.platform().now()
    }

    fn cpu_time(&self) -> Nanos {
        self.heap.platform().cpu_time()
    }

    fn cpu_percent(&self) -> u64 {
        self.heap.platform().tunables().reclaim_cpu_percent.get()
    }

    fn is_severe(&self) -> bool {
        self.heap.reclaim.pressure.level() == Level::Severe
    }

    fn is_urgent(&self) -> bool {
        self.heap.reclaim.pressure.is_urgent(self.now())
    }

    fn boost_life(&self) -> Nanos {
        self.relief_ns()
    }

    fn is_reclaimable(&self, zone: usize) -> bool {
        let class = ZoneClass::ALL[zone];
        if !self.heap.pages().is_reporting() {
            return false;
        }
        let goal = Goal { zone: class, ..Goal::new(Kind::balance(class), Cause::Pressure, Time::ZERO, 0) };
        let has_idle = || self.heap.parts().reclaimable().iter().any(|part| !part.count(&goal).is_zero());
        self.has_evictable(class) || class == ZoneClass::Normal && has_idle()
    }

    fn part(&self, lacks: Pages) -> Part {
        self.part_of_limit(lacks)
    }

    fn scan(&self, scan: &ZoneScan) -> Scanned {
        let class = ZoneClass::ALL[scan.zone];
        let bytes = scan.pages.bytes();
        if scan.is_short {
            // Otherwise it is a boost, of pressure that was heard.
            self.zone_is_short(class);
        }
        let before = self.elsewhere(class);
        let got = self.run(&Goal {
            bytes,
            priority: scan.priority,
            is_short: scan.is_short,
            zone: class,
            ..self.goal_of_limit(Kind::balance(class))
        });
        let (elsewhere, fell) = before.map_or((Bytes::ZERO, Bytes::ZERO), |before| before.until(self.heap.platform()));
        // NORMAL gains what was released, here or by another allocator. In a zone that is not elastic, what was moved is free for
        // others.
        let reclaimed = if class == ZoneClass::Normal { got.released.max(fell) } else { got.total() };
        let [scanned, reclaimed, elsewhere] = [got.scanned, reclaimed, elsewhere].map(Bytes::pages_up);
        let scanned = Scanned { scanned, reclaimed, elsewhere };
        self.note_scan(Side::Balancer, scanned);
        scanned
    }

    fn release_throttled(&self) {
        self.heap.reclaim.throttle.tell(self.heap.platform());
    }

    fn note_awake(&self, awake: Nanos, cpu: Nanos) {
        let stats = self.heap.platform().stats();
        stats::add(&stats.balancer_active_ns, awake.0);
        stats::add(&stats.balancer_cpu_ns, cpu.0);
    }
}
