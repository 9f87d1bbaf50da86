//! The cost curve of the process ([`crate::policy::cost_curve`]), for the page of counters.
//!
//! | part | bytes | price |
//! |---|---|---|
//! | idle, in pools too | as they were measured | to touch them again: a fault a page, as the platform measured it |
//! | to be merged | what the kernel has still to merge of what was made equal | twice that: a fault, and a copy of the page |
//! | evictable caches | what pressure may take | hits lost in a second, times what a miss takes ([`crate::policy::cache_cost`]) |
//! | shrinkers | what the last scan left of what they counted | an access to storage for each of their seeks, a page |
//!
//! What is in use and in no cache has no price: the process cannot do without it.

use super::MemoryFigures;
use crate::base::cost::Cost;
use crate::base::units::PAGE;
use crate::platform::Platform;
use crate::policy::cache_cost::{self, CacheUse, STORAGE_NS};
use crate::policy::cost_curve::CostCurve;
use crate::policy::prices::Prices;
use crate::reclaim::Usage;
use crate::telemetry::tables::EvictableRow;

/// A MiB.
const MIB: u64 = 1 << 20;

impl<P: Platform> MemoryFigures<'_, P> {
    /// Brings the cost curve up to date, by what was just measured and the figures of the evictable caches.
    /// `each` calls its argument with the row of each of them, and where its prices are told. It returns whether that were all:
    /// where not, the curve stays as it was.
    pub fn publish_costs(
        &self,
        usage: &Usage,
        each: impl FnOnce(&mut dyn FnMut(&EvictableRow, &Prices)) -> bool,
    ) -> bool {
        let (platform, mut curve, mut all_hits) = (self.heap.platform(), CostCurve::default(), 0u64);
        let touch_ns = platform.touch_ns();
        curve.add(once(usage.idle, touch_ns));
        curve.add(once(self.heap.merger().awaited_bytes(), touch_ns.saturating_mul(2)));
        let is_whole = each(&mut |cache, prices| {
            all_hits = all_hits.saturating_add(cache.hit_rate);
            // How many hits all have together is not known yet: the lost ones are divided by it below.
            let parts = cache_cost::parts(&used(cache), 1);
            prices.tell(&parts);
            parts.into_iter().for_each(|part| curve.add(part));
        });
        if !is_whole {
            return false;
        }
        self.heap.callbacks().each(platform, |entry| {
            let (bytes, seeks) = entry.left().unwrap_or_default();
            curve.add(once(bytes, u64::from(seeks).saturating_mul(STORAGE_NS * MIB / PAGE as u64)));
        });
        let share = |point: Cost| Cost { lost_ppm: point.lost_ppm / all_hits.max(1), ..point };
        platform.stats().costs.write(|add| curve.points().map(share).for_each(add));
        true
    }
}

/// Bytes that cost `ns` a MiB, once.
fn once(bytes: usize, ns: u64) -> Cost {
    Cost { bytes: MIB, once_ns: ns, ..Cost::default() }.part(bytes as u64)
}

fn used(cache: &EvictableRow) -> CacheUse {
    let &EvictableRow { bytes, spare_bytes, hit_rate, return_rate, miss_ns, .. } = cache;
    let is_edge_hidden = cache.evicted_for_pressure > cache.evicted_for_room;
    CacheUse { bytes, spare_bytes, hit_rate, return_rate, miss_ns, is_edge_hidden }
}
