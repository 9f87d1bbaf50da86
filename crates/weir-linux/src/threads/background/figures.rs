//! The figures that are more than a counter, on the page of counters. They are where the memory is, the tables of caches, zones and
//! evictable caches, and the cost curve. The background thread brings them up to date at the end of calm windows, and when it is
//! asked to.

use core::fmt::Write;
use core::sync::atomic::Ordering::Relaxed;

use weir_core::caches::figures::CacheStats;
use weir_core::caches::geometry::FIRST_USER;
use weir_core::evict::callback::Class;
use weir_core::heap::figures::Measurement;
use weir_core::pages::figures::ZoneFigures;
use weir_core::reclaim::Usage;
use weir_core::telemetry::name::Name;
use weir_core::telemetry::tables::{CacheRow, ZoneRow};
use weir_core::telemetry::trace::Place;

use crate::os::clock::{monotonic_ns, thread_cpu_ns};
use crate::platform::linux::Engine;
use crate::platform::statics::{STATS, TUNABLES};
use crate::platform::stats_page;
use crate::pressure::sources::Sources;
use crate::threads::background::evictable_rows::write_evictable_caches;

/// In a busy process the figures are brought up to date again only after so many times as long as it took on a CPU. So it takes
/// at most 0.1 % of one.
const PAUSE: u64 = 1000;
/// Pageblocks that are looked at in one turn, 2 us each: as long as the node balancer works in one (10 ms). A heap of 1 TiB
/// has 524,288; between two turns the thread hears of pressure.
const LOOKS: usize = 4096;

/// When the figures are to be brought up to date.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Not before, ns of the monotonic clock.
    due: u64,
    /// A measurement that is being made, and how long it has taken on a CPU so far, ns.
    under_way: Option<(Measurement, u64)>,
}

impl Figures {
    /// At the end of a calm window. At rest (`is_last`) they are brought up to date in any case, as they stay as they are. A heap
    /// comes to rest after several quiet windows, and so seldom. [`Figures::go_on`] does it.
    pub fn window_ended(&mut self, is_last: bool) {
        let is_due = is_last || self.under_way.is_none() && monotonic_ns() >= self.due;
        if TUNABLES.publish.get() != 0 && is_due {
            self.under_way = Some(Default::default());
        }
    }

    /// Whether a measurement is being made, which is to be gone on with at once.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Goes on with a measurement that is being made, for a bounded time.
    pub fn go_on(&mut self, heap: &Engine, sources: &Sources) {
        if self.is_under_way() {
            self.measure(heap, sources, LOOKS);
        }
    }

    /// Brings them up to date now, however long that takes: for who asks for them.
    pub fn bring_up_to_date(&mut self, heap: &Engine, sources: &Sources) -> Usage {
        self.under_way = None;
        heap.platform().merging.look_if_wanted();
        loop {
            if let Some(usage) = self.measure(heap, sources, usize::MAX) {
                heap.figures().publish();
                return usage;
            }
        }
    }

    fn measure(&mut self, heap: &Engine, sources: &Sources, looks: usize) -> Option<Usage> {
        let begun = thread_cpu_ns();
        let resident = if sources.is_private() { sources.resident().unwrap_or(0) } else { 0 };
        let (measurement, took) = self.under_way.get_or_insert_default();
        let Some(usage) = heap.figures().measure(measurement, looks, resident) else {
            *took += thread_cpu_ns().saturating_sub(begun);
            return None;
        };
        let took = *took;
        self.under_way = None;
        if stats_page::prepare_tables() {
            write_caches(heap);
            write_zones(heap);
            write_evictable_caches(heap, &usage);
        }
        let took = took + thread_cpu_ns().saturating_sub(begun);
        self.due = monotonic_ns() + took * PAUSE;
        Some(usage)
    }
}

fn write_caches(heap: &Engine) {
    STATS.caches.write(|add| {
        // Run classes last: where there are more caches than places, they are what is left out.
        for are_runs in [false, true] {
            heap.user_caches().each(&mut |cache| {
                let is_used = cache.number >= FIRST_USER || cache.requests > 0 || cache.slab_bytes > 0;
                if is_used && cache.is_of_runs() == are_runs {
                    add(cache_row(&cache));
                }
            });
        }
    });
}

fn cache_row(cache: &CacheStats) -> CacheRow {
    let count = |count: usize| count as u64;
    CacheRow {
        name: cache.name,
        number: count(cache.number),
        size: count(cache.size),
        limit: count(cache.limit),
        used: count(cache.used),
        free_cpu: count(cache.free_cpu),
        free_depot: count(cache.free_depot),
        free_slab: count(cache.free_slab),
        slab_bytes: count(cache.slab_bytes),
        requests: cache.requests,
        failures: cache.failures,
        visits: cache.visits,
        misses: cache.misses,
        crossed: cache.crossed,
        bucket: count(cache.bucket[0]),
        working_set: count(cache.working_set),
        stale_ns: cache.stale_ns,
        trims: cache.trims,
        trimmed_bytes: cache.trimmed_bytes,
        drains: cache.drains,
        drained_bytes: cache.drained_bytes,
    }
}

fn write_zones(heap: &Engine) {
    let budget = heap.reclaim().budget_figures();
    STATS.limit_group.store(heap.reclaim().limit_group(), Relaxed);
    let limits = [budget.capacity, budget.free, budget.min, budget.low, budget.high].map(|bytes| bytes as u64);
    STATS.zones.write(|add| zone_rows(|f| heap.pages().each_zone(f), limits, add));
}

/// Nodes with a row for each of their zones. Those of further nodes are added up.
const NODES: u64 = 6;

/// Tells the rows of all zones. Where they are more than there are places, those told last are left out: NORMAL of further nodes,
/// then zones of the program's. None of LOW32 is: `weir why` adds these up.
fn zone_rows(each_zone: impl Fn(&mut dyn FnMut(ZoneFigures)), limits: [u64; 5], add: &mut dyn FnMut(ZoneRow)) {
    for turn in 0..3 {
        let mut others = ZoneRow::default();
        each_zone(&mut |zone| {
            let its_turn = match (zone.place, zone.number) {
                (Place::Normal, 0) | (Place::Low32, _) => 0,
                (Place::User, _) => 1,
                (Place::Normal, _) => 2,
            };
            if its_turn != turn {
                return;
            }
            let mut row = zone_row(&zone);
            if zone.place != Place::User && zone.number >= NODES {
                let ZoneRow { bytes, used, idle, .. } = others;
                others = ZoneRow { bytes: bytes + row.bytes, used: used + row.used, idle: idle + row.idle, ..others };
                others.name = name_of(zone.place, format_args!(", others"));
                return;
            }
            // The budget is of all nodes together: it is told with the first.
            if (zone.place, zone.number) == (Place::Normal, 0) {
                [row.capacity, row.free, row.min, row.low, row.high] = limits;
            }
            add(row);
        });
        if others != ZoneRow::default() {
            add(others);
        }
    }
}

fn name_of(place: Place, which: core::fmt::Arguments<'_>) -> Name {
    let kind = match place {
        Place::Normal => "NORMAL",
        Place::Low32 => "LOW32",
        Place::User => "zone",
    };
    let mut name = Name::EMPTY;
    let _ = write!(name, "{kind}{which}");
    name
}

fn zone_row(zone: &ZoneFigures) -> ZoneRow {
    let name = name_of(zone.place, format_args!(" {}", zone.number));
    ZoneRow { name, bytes: zone.bytes as u64, used: zone.used as u64, idle: zone.idle as u64, ..ZoneRow::default() }
}

/// Writes the cost curve and the limit anew while memory is short: what is idle, and what caches have now. Others under the same `weir
/// run` go by them, and this process's next scan of its caches. Only where they were measured before, and the tables have memory.
pub(super) fn tell_costs(heap: &Engine) {
    let is_read = stats_page::is_shared() || heap.callbacks().count(Class::Cache) > 0;
    let is_told = TUNABLES.publish.get() != 0 && STATS.measured.at.load(Relaxed) > 0;
    if is_read && is_told && stats_page::prepare_tables() {
        heap.figures().publish();
        let mut usage = Usage::default();
        usage.idle = STATS.idle_bytes.load(Relaxed) as usize;
        write_zones(heap);
        write_evictable_caches(heap, &usage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_named_by_kind_and_number() {
        let zone = |place, number| {
            let row = zone_row(&ZoneFigures { place, number, bytes: 3, used: 2, idle: 1 });
            std::string::String::from(row.name())
        };
        assert_eq!(zone(Place::Normal, 0), "NORMAL 0");
        assert_eq!(zone(Place::Low32, 12), "LOW32 12");
        assert_eq!(zone(Place::User, u64::MAX), std::format!("zone {}", u64::MAX));
    }

    #[test]
    fn many_nodes_have_rows_for_all_that_is_below_4_gib() {
        use std::{string::String, vec::Vec};
        let each_zone = |f: &mut dyn FnMut(ZoneFigures)| {
            let mut tell = |place, number| f(ZoneFigures { place, number, bytes: 100, used: 10, idle: 1 });
            for node in 0..16 {
                tell(Place::Normal, node);
                tell(Place::Low32, node);
            }
            (0..9).for_each(|number| tell(Place::User, number));
        };
        let mut rows = Vec::new();
        zone_rows(each_zone, [5; 5], &mut |row| rows.push(row));
        let name = |row: &ZoneRow| String::from(row.name());
        let low = |row: &&ZoneRow| row.name().starts_with("LOW32");
        // 16 have places.
        assert_eq!(rows[..16].iter().filter(low).map(|row| row.bytes).sum::<u64>(), 1600);
        assert_eq!(rows.iter().filter(|row| !low(row)).map(|row| row.idle).sum::<u64>(), 16 + 9, "some have no place");
        assert_eq!((name(&rows[0]), rows[0].capacity, rows[1].capacity), ("NORMAL 0".into(), 5, 0));
        assert_eq!([name(&rows[7]), name(&rows[8])], ["LOW32, others", "zone 0"]);
        assert_eq!(rows.last().map(|row| (name(row), row.used)), Some(("NORMAL, others".into(), 100)));
    }
}
