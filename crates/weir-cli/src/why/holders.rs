//! The caches and sizes that hold most.

use crate::base::output::printable_line;
use crate::base::units::bytes;
use crate::figures::memory::Measured;
use crate::figures::rows;
use crate::inspect::page::Page;
use serde::Serialize;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::base::size_class::MAX_SIZE;
use weir_core::base::units::MAX_RUN;
use weir_core::telemetry::tables::{CacheRow, EvictableRow};

/// How many are named.
const NAMED: usize = 5;

/// Something that holds memory, bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    pub name: String,
    /// The size of one of its objects; 0: they differ.
    pub object_bytes: u64,
    /// Objects in use; 0: not counted.
    pub objects: u64,
    pub held_bytes: u64,
    /// In use by the program.
    pub used_bytes: u64,
    /// Free in CPUs' buckets and the depot: can be released.
    pub cached_bytes: u64,
    /// Free in slabs: can be released where a whole page is free.
    pub in_slabs_bytes: u64,
}

impl Holder {
    /// What is left over of slabs behind their last objects: no object ever has it.
    pub fn rest_bytes(&self) -> u64 {
        let objects = [self.used_bytes, self.cached_bytes, self.in_slabs_bytes];
        objects.into_iter().fold(self.held_bytes, u64::saturating_sub)
    }
}

/// All of them, largest first.
pub fn all(page: &Page) -> Vec<Holder> {
    let (caches, _) = rows(&page.caches);
    let mut all: Vec<Holder> = caches.iter().map(cache).collect();
    let of_runs = caches.iter().filter(|row| row.is_of_runs());
    let in_buckets = of_runs.map(|row| row.free_cpu.saturating_mul(row.size)).fold(0, u64::saturating_add);
    let slabs = caches.iter().map(|row| row.slab_bytes).fold(0, u64::saturating_add);
    // What is handed out is counted always, and the caches' rows are of a measurement. Before the first one nothing says
    // which part of it is slabs.
    let is_measured = Measured::of(page).is_some();
    let runs = if is_measured { page.page_bytes.load(Relaxed).saturating_sub(slabs) } else { 0 };
    let above = |size: usize| format!("blocks of more than {}", bytes(size as u64));
    let (runs, cached_bytes) = (whole(above(MAX_SIZE), 0, runs), in_buckets.min(runs));
    all.push(Holder { used_bytes: runs.used_bytes - cached_bytes, cached_bytes, ..runs });
    all.push(whole(above(MAX_RUN.length()), 0, page.mapped_bytes.load(Relaxed)));
    let (evictable, _) = rows::<EvictableRow, _>(&page.evictable_caches);
    all.extend(
        evictable
            .iter()
            .map(|row| whole(format!("evictable cache {}", printable_line(row.name())), row.entries, row.bytes)),
    );
    all.retain(|holder| holder.held_bytes > 0);
    all.sort_by_key(|holder| std::cmp::Reverse(holder.held_bytes));
    all
}

/// The holders of most memory.
pub fn largest(all: &[Holder]) -> Vec<Holder> {
    all.iter().take(NAMED).cloned().collect()
}

fn cache(row: &CacheRow) -> Holder {
    let bytes = |objects: u64| objects.saturating_mul(row.size);
    Holder {
        name: printable_line(row.name()),
        object_bytes: row.size,
        objects: row.used,
        held_bytes: row.slab_bytes,
        used_bytes: bytes(row.used),
        cached_bytes: bytes(row.free_cpu.saturating_add(row.free_depot)),
        in_slabs_bytes: bytes(row.free_slab),
    }
}

fn whole(name: String, objects: u64, bytes: u64) -> Holder {
    let (held_bytes, used_bytes) = (bytes, bytes);
    Holder { name, object_bytes: 0, objects, held_bytes, used_bytes, cached_bytes: 0, in_slabs_bytes: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::telemetry::stats::{PAGE_BYTES, Stats};

    fn of(stats: &Stats) -> Vec<Holder> {
        // SAFETY: the page is `stats`, which has so many bytes, and nothing writes to it.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(stats).cast::<u8>(), PAGE_BYTES) };
        all(&Page::of(bytes).unwrap())
    }

    #[test]
    fn small_blocks_that_no_row_counts_yet_are_not_told_as_large_ones() {
        let stats = Stats::new();
        stats.page_bytes.store(3 << 20, Relaxed);
        stats.mapped_bytes.store(5 << 20, Relaxed);
        let names = |stats: &Stats| -> Vec<String> { of(stats).into_iter().map(|holder| holder.name).collect() };
        let [runs, mapped] =
            [MAX_SIZE, MAX_RUN.length()].map(|size| format!("blocks of more than {}", bytes(size as u64)));
        assert_eq!(names(&stats), [&*mapped]);
        stats.measured.note(1, [0; 7]);
        assert_eq!(names(&stats), [mapped, runs]);
    }

    #[test]
    fn runs_in_buckets_are_not_in_use() {
        let stats = Stats::new();
        stats.page_bytes.store(3 << 20, Relaxed);
        stats.measured.note(1, [0; 7]);
        let row = CacheRow { number: 78, size: 64 << 10, used: 8, free_cpu: 16, ..CacheRow::default() };
        stats.caches.write(|add| add(row));
        let runs = of(&stats).remove(0);
        assert_eq!([runs.held_bytes, runs.used_bytes, runs.cached_bytes].map(|bytes| bytes >> 20), [3, 2, 1]);
    }
}
