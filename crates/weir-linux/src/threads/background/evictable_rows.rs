//! The rows of evictable caches on the page of counters. All caches are on the cost curve. The table has room for those that
//! hold most, and for one row of all others together.

use arrayvec::ArrayVec;
use weir_core::reclaim::Usage;
use weir_core::telemetry::name::Name;
use weir_core::telemetry::tables::EvictableRow;

use crate::platform::linux::Engine;
use crate::platform::statics::STATS;

/// Caches with a row of their own: one less than there are places.
const OWN: usize = 15;

#[derive(Default)]
struct Rows {
    own: ArrayVec<EvictableRow, OWN>,
    others: Option<EvictableRow>,
}

impl Rows {
    fn add(&mut self, row: EvictableRow) {
        let Err(error) = self.own.try_push(row) else { return };
        let mut row = error.element();
        // The first of the smallest leaves its place, if it holds less.
        if let Some(least) = self.own.iter_mut().min_by_key(|row| row.bytes).filter(|least| least.bytes < row.bytes) {
            core::mem::swap(least, &mut row);
        }
        self.others = Some(self.others.map_or(row, |others| together(&others, &row)));
    }
}

/// One row of two caches.
fn together(one: &EvictableRow, two: &EvictableRow) -> EvictableRow {
    let sum = |field: fn(&EvictableRow) -> u64| field(one).saturating_add(field(two));
    let hits_ns = |row: &EvictableRow| u128::from(row.hit_rate) * u128::from(row.miss_ns);
    let hit_rate = sum(|row| row.hit_rate);
    EvictableRow {
        name: Name::new(b"others"),
        bytes: sum(|row| row.bytes),
        entries: sum(|row| row.entries),
        target_bytes: sum(|row| row.target_bytes),
        max_bytes: sum(|row| row.max_bytes),
        hits: sum(|row| row.hits),
        misses: sum(|row| row.misses),
        insertions: sum(|row| row.insertions),
        evicted_for_room: sum(|row| row.evicted_for_room),
        evicted_for_pressure: sum(|row| row.evicted_for_pressure),
        spare_bytes: sum(|row| row.spare_bytes),
        hit_rate,
        return_rate: sum(|row| row.return_rate),
        // As much as all their hits are worth.
        miss_ns: ((hits_ns(one) + hits_ns(two)) / u128::from(hit_rate.max(1))) as u64,
    }
}

/// The table of evictable caches, and the cost curve, of which they are a part.
pub(super) fn write_evictable_caches(heap: &Engine, usage: &Usage) {
    let mut rows = Rows::default();
    let is_whole = heap.figures().publish_costs(usage, |tell| {
        heap.platform().each_evictable_cache(&mut |row, prices| {
            tell(&row, prices);
            rows.add(row);
        })
    });
    // Where a lock was held the figures of the last time stay.
    if is_whole {
        STATS.evictable_caches.write(|add| rows.own.into_iter().chain(rows.others).for_each(add));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_hold_most_have_rows_and_the_others_one_together() {
        let row = |bytes, miss_ns| EvictableRow { bytes, hits: 1, hit_rate: 10, miss_ns, ..EvictableRow::default() };
        let mut rows = Rows::default();
        rows.add(row(1000, 5));
        (0..14).for_each(|at| rows.add(row(at, 5)));
        assert!(rows.own.is_full() && rows.others.is_none());
        rows.add(EvictableRow { name: Name::new(b"alone"), ..row(0, 5) });
        assert_eq!(rows.others.map(|row| row.name), Some(Name::new(b"alone")));
        rows.add(row(500, 7));
        rows.add(row(1, 25));
        let others = rows.others.unwrap();
        assert_eq!((others.name(), others.bytes, others.hits, others.miss_ns), ("others", 1, 3, 11));
        let held: u64 = rows.own.iter().map(|row| row.bytes).sum();
        assert_eq!((held, rows.own[0].bytes), (1500 + (0..14).sum::<u64>(), 1000));
    }
}
