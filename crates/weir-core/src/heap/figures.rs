//! Figures: where the memory is ([`crate::reclaim::usage`] defines the words), and the page of counters.

mod costs;
pub(in crate::heap) mod measure_pause;

use core::sync::atomic::Ordering::Relaxed;

use super::Heap;
use super::view::view;
use crate::blocks::reclaimer::BlocksWalk;
use crate::caches::usage::PagesWalk;
use crate::platform::Platform;
use crate::reclaim::{Figures, Usage};

/// A measurement of where the memory is, made in parts.
#[derive(Debug, Default)]
pub struct Measurement {
    pages: PagesWalk,
    blocks: BlocksWalk,
}

view! {
    /// Where the memory is, and the page of counters.
    pub struct MemoryFigures;
    /// Figures.
    fn figures;
}

impl<P: Platform> MemoryFigures<'_, P> {
    /// Where the memory is now. O(pages of the heap), with a system call for each pageblock (2 MiB; a few us with its
    /// slabs). No lock is held for longer than one pageblock or slab is looked at.
    pub fn usage(&self) -> Usage {
        let mut measurement = Measurement::default();
        loop {
            if let Some(usage) = self.usage_by(&mut measurement, usize::MAX) {
                return usage;
            }
        }
    }

    /// Goes on with a measurement by `looks` looks at pageblocks; `None`: it is not done yet.
    fn usage_by(&self, measurement: &mut Measurement, looks: usize) -> Option<Usage> {
        let (Measurement { pages, blocks }, mut looks) = (measurement, looks);
        if !self.heap.caches.walk_pages(pages, &mut looks) || !self.heap.mapped().walk_blocks(blocks, &mut looks) {
            return None;
        }
        let mut usage = Usage::default();
        self.heap.caches.add_pages_usage(pages, &mut usage);
        self.heap.mapped().add_blocks_usage(blocks, &mut usage);
        self.heap.parts().measured().iter().for_each(|part| part.add_usage(&mut usage));
        usage.metadata = self.metadata();
        Some(usage)
    }

    /// Goes on with measuring where the memory is, for the page of counters, by `looks` looks at pageblocks of 2 MiB, about
    /// 2 us each; `None`: it is not done yet, and is to be gone on with. `resident`: bytes of the whole process that are resident,
    /// 0 where they are not known.
    pub fn measure(&self, measurement: &mut Measurement, looks: usize, resident: u64) -> Option<Usage> {
        let usage = self.usage_by(measurement, looks)?;
        let Usage { live, idle, fragmented, merged, metadata, untouched, .. } = usage;
        let [live, idle, fragmented, merged, metadata, untouched] =
            [live, idle, fragmented, merged, metadata, untouched].map(|bytes| bytes as u64);
        let found = [live, idle, fragmented, merged, metadata, untouched, resident];
        self.heap.platform().stats().measured.note(self.heap.platform().now().0, found);
        self.note_metadata(usage.metadata);
        Some(usage)
    }

    fn metadata(&self) -> usize {
        let of_parts = self.heap.parts().measured().iter().map(|part| part.metadata()).sum::<usize>();
        of_parts + self.heap.profile.metadata(self.heap.platform())
    }

    fn note_metadata(&self, bytes: usize) {
        let shown = &self.heap.platform().stats().metadata_bytes;
        self.heap.pages().gauges.metadata_bytes.set(bytes as u64, shown);
    }

    /// Frees and slow-path allocations so far.
    pub(super) fn activity(&self) -> u64 {
        self.heap.mapped().count_pairs();
        let stats = self.heap.platform().stats();
        let pushes = self.publish_fast_frees();
        let counters = [&stats.alloc_misses, &stats.free_misses, &stats.large_allocs];
        counters.iter().map(|counter| counter.load(Relaxed)).sum::<u64>() + pushes
    }

    /// Shows the frees that the fast path served in this process; the result has its parent's among them.
    fn publish_fast_frees(&self) -> u64 {
        let pushes = self.heap.caches.cpu.pushes();
        let own = pushes.saturating_sub(self.heap.parents_frees.load(Relaxed));
        self.heap.platform().stats().fast_frees.store(own, Relaxed);
        pushes
    }

    /// In a forked child: counts the fast path's frees from here on. The counts of CPUs go on from the parent's.
    pub(super) fn leave_parents_frees(&self) {
        self.heap.parents_frees.store(self.heap.caches.cpu.pushes(), Relaxed);
    }

    /// Brings the page of counters up to date. O(caches * CPUs), but for metadata, which is measured now and then.
    pub fn publish(&self) {
        self.publish_figures(true);
        let begin = self.heap.platform().now();
        if self.heap.measure_pause.is_over(begin) {
            self.note_metadata(self.metadata());
            self.heap.measure_pause.restart(begin, self.heap.platform().now());
        }
    }

    /// The part of [`MemoryFigures::publish`] that waits for no lock, for the end of a process, which may come at any moment.
    pub fn publish_counts(&self) {
        self.publish_figures(false);
    }

    fn publish_figures(&self, waits: bool) {
        let mut figures = Figures::default();
        self.publish_fast_frees();
        self.heap.parts().measured().iter().for_each(|part| part.publish(&mut figures, waits));
        if figures.is_partial {
            return;
        }
        let stats = self.heap.platform().stats();
        self.heap.pages().gauges.show(stats);
        self.heap.profile.publish(self.heap.platform());
        let stores = [
            (&stats.live_bytes, figures.live()),
            (&stats.idle_bytes, figures.idle),
            (&stats.fragmented_bytes, figures.fragmented),
            (&stats.merged_bytes, figures.merged),
        ];
        stores.into_iter().for_each(|(stat, bytes)| stat.store(bytes.0 as u64, Relaxed));
        stats.objects_out.store(figures.objects_out as u64, Relaxed);
    }

    /// Blocks mapped on their own, now.
    pub fn mapped_count(&self) -> usize {
        self.heap.mapped().count()
    }

    /// How often a pageblock was looked at so far: the steps of slow paths, for tests of how they grow.
    #[cfg(debug_assertions)]
    pub fn pageblock_visits(&self) -> usize {
        use core::sync::atomic::Ordering::Relaxed;
        let pages = self.heap.pages();
        let own = [&pages.normal, &pages.low].map(|window| window.visits.load(Relaxed));
        own.into_iter().sum::<usize>() + pages.user_zone_visits()
    }
}
