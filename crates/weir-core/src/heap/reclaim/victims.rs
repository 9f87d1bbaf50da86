//! How much this process gives where others hear of the same shortage: its part of what is cheapest on all curves that it can
//! read ([`crate::policy::victim_order`]).
//!
//! Only the balancer's thread writes the process's own curve, and looks at the pages of others.

use core::sync::atomic::Ordering::Relaxed;

use super::Reclaim;
use crate::base::cause::Cause;
use crate::base::cost::Cost;
use crate::base::level::Level;
use crate::base::units::{Bytes, Pages};
use crate::base::zone_class::ZoneClass;
use crate::platform::Platform;
use crate::policy::victim_order::VictimOrder;
use crate::policy::watermarks::boost_step;
use crate::reclaim::node_balancer::Part;
use crate::reclaim::pressure_level::HEARD_NS;
use crate::telemetry::stats::Stats;
use crate::telemetry::tables::ZoneRow;

impl<P: Platform> Reclaim<'_, P> {
    /// Pages that caches are to give up for an event of pressure from outside. Where there is no other process, or the own curve
    /// tells of nothing but what was idle and is `released`, this one gives as one that is alone. At the severe level it gives
    /// something in any case: others may not be in time.
    pub(super) fn victims(&self, level: Level, released: Bytes) -> Pages {
        if !self.has_evictable(ZoneClass::Normal) {
            return Pages::ZERO;
        }
        let (platform, is_severe, released) = (self.heap.platform(), level == Level::Severe, released.0 as u64);
        let step = |resident: Pages| boost_step(resident, is_severe);
        let alone = step(self.resident_pages());
        let Some(mut order) = self.own_order(alone).filter(|order| order.bytes() > released) else { return alone };
        // Who has heard nothing by now does not hear of this pressure, and gives nothing. Nor does one that heard of it long ago: it
        // was stopped since, or events reach this process alone.
        let (now, hold) = (platform.now(), self.relief_ns() + HEARD_NS);
        let is_heard = now.since(self.heap.reclaim.pressure.began()) > HEARD_NS;
        platform.neighbours(&mut |page| {
            if !is_heard || page.hears_pressure(now, hold) {
                let resident = page.page_bytes.load(Relaxed).saturating_add(page.mapped_bytes.load(Relaxed));
                add(&mut order, page, step(Pages::in_bytes(resident as usize)));
            }
        });
        let Some(part) = order.part() else { return alone };
        let least = if is_severe { boost_step(self.resident_pages(), false) } else { Pages::ZERO };
        Pages::to_hold(part.saturating_sub(released) as usize).max(least)
    }

    /// Of the pages that NORMAL lacks, those that this process is to give: all, where it has no caches, the limit that is short is
    /// its own, or no other process is known to live below the same.
    pub(super) fn part_of_limit(&self, lacks: Pages) -> Part {
        let all = Part { own: lacks, ..Part::default() };
        // The process's own limit may be farther away than the one that is short.
        if self.budget_room().is_own || self.is_hard_limit_nearest() || !self.has_evictable(ZoneClass::Normal) {
            return all;
        }
        let Some(mut order) = self.own_order(Pages::ZERO).filter(|order| order.bytes() > 0) else { return all };
        let limit = (self.normal_zone().managed.bytes().0 as u64, self.limit_group());
        let mut given = 0u64;
        let (mut seen, mut others) = (0u64, 0u64);
        let unseen = self.heap.platform().neighbours(&mut |page| {
            seen += 1;
            if limit_of(page) == Some(limit) {
                others += 1;
                add(&mut order, page, Pages::ZERO);
                // What calm windows release goes on whatever is missing.
                let causes = [Cause::Pressure, Cause::Limit].map(|cause| &page.given_back[cause as usize]);
                given = causes.iter().fold(given, |sum, bytes| sum.saturating_add(bytes.load(Relaxed)));
            }
        });
        // Those that were not looked at have as much of both as these.
        let all = others + unseen as u64 * others / seen.max(1);
        let missing = (lacks.bytes().0 as u64).saturating_mul(others + 1) / (all + 1);
        let given = (given / others.max(1)).saturating_mul(all);
        let own = order.part_of(missing).map_or(lacks, |part| Pages::to_hold(part as usize).min(lacks));
        Part { own, given: Pages::in_bytes(given as usize) }
    }

    /// The order with this process alone, which would give `alone` by itself; `None`: it knows nothing of its costs.
    fn own_order(&self, alone: Pages) -> Option<VictimOrder> {
        let platform = self.heap.platform();
        let (own, _) = platform.has_balancer_thread().then(|| platform.stats().costs.read::<Cost>())??;
        Some(VictimOrder::new(own, alone.bytes().0 as u64))
    }
}

/// Adds the process of a page, which by itself would give `alone`.
fn add(order: &mut VictimOrder, page: &Stats, alone: Pages) {
    if let Some((points, _)) = page.costs.copied().read::<Cost>() {
        order.add(points, alone.bytes().0 as u64);
    }
}

/// Bytes that may be resident below the tightest limit of a page's process, and the group that has it, as it told last.
fn limit_of(page: &Stats) -> Option<(u64, u64)> {
    let zones = page.zones.copied();
    let (mut rows, _) = zones.read::<ZoneRow>()?;
    rows.next().map(|normal| (normal.capacity, page.limit_group.load(Relaxed)))
}
