//! Where the memory of caches and of runs is: one walk over the class map, which tells slabs from runs from free pages.
//!
//! An object that is not free in its slab is the program's, or it is *cached*. A cached object is in a CPU's bucket, in
//! a depot, or isolated for a report. A walk cannot tell these apart, but there are counts of what is cached.

use super::cache::Cache;
use super::cpu::buckets::SLAB_BYTES;
use super::depot::shells::GROUP;
use super::geometry::class_of_number;
use super::heap_caches::Caches;
use super::slab::usage::SlabUsage;
use crate::base::run::Run;
use crate::base::run_class;
use crate::base::units::{BlockNo, Bytes, Class, MAX_RUN, PageNo, Pages};
use crate::pages::figures::{BlockPages, resident_bytes};
use crate::pages::node::ZoneKind;
use crate::pages::window::{NOTHING, heads_run};
use crate::platform::Platform;
use crate::reclaim::{Figures, Measured, Usage};

/// A walk over all pageblocks, which may stop between any two: where it goes on, and what it has found by then, bytes.
#[derive(Debug, Default)]
pub(crate) struct PagesWalk {
    /// Zones, by their place in [`ZoneKind::ALL`], that are done.
    kinds: usize,
    /// Pageblocks of the next one that are done.
    blocks: BlockNo,
    slabs: SlabUsage,
    /// Resident pages that are free.
    free: usize,
    /// Pages of runs, and of those the pages that are not resident.
    runs: usize,
    runs_untouched: usize,
    /// Where the run ends that the walk is in.
    run_end: PageNo,
}

impl<P: Platform> Caches<P> {
    /// Walks on over at most `looks` pageblocks, with one look of the platform's at each, and counts them down; whether the
    /// walk is done. No lock is held for longer than a pageblock or a slab is looked at, and none over a system call.
    pub(crate) fn walk_pages(&self, walk: &mut PagesWalk, looks: &mut usize) -> bool {
        while let Some(&kind) = ZoneKind::ALL.get(walk.kinds) {
            let end = self.pages.window(kind).top().block();
            while walk.blocks < end {
                if *looks == 0 {
                    return false;
                }
                *looks -= 1;
                let block = walk.blocks;
                walk.blocks = block.next();
                if let Some(pages) = self.pages.block_pages(kind, block) {
                    self.walk_block(kind, block, &pages, walk);
                }
            }
            (walk.kinds, walk.blocks, walk.run_end) = (walk.kinds + 1, BlockNo(0), PageNo(0));
        }
        true
    }

    /// Adds what a whole walk has found. O(caches * CPUs).
    pub(crate) fn add_pages_usage(&self, walk: &PagesWalk, usage: &mut Usage) {
        let cached = self.cached_bytes().min(walk.slabs.out);
        let cached_runs = self.cached_runs().0.min(walk.runs);
        let slabs = &walk.slabs;
        let in_use = slabs.out.saturating_sub(slabs.out_untouched);
        usage.live += slabs.out - cached + walk.runs - cached_runs;
        usage.idle += walk.free + slabs.free_resident + cached + cached_runs;
        usage.fragmented += (slabs.resident - slabs.free_resident).saturating_sub(in_use);
        usage.untouched += slabs.out_untouched + walk.runs_untouched;
    }

    fn walk_block(&self, kind: ZoneKind, block: BlockNo, pages: &BlockPages, walk: &mut PagesWalk) {
        let window = self.pages.window(kind);
        let (first, end) = (block.first(), block.next().first());
        let resident = |page: PageNo, n: Pages| {
            let at = (page - first).0;
            pages.resident.count_range(at..at + n.0).bytes().0
        };
        if pages.is_free {
            // Memory need not be behind its part of the class map, and is not to be by being read here.
            walk.free += resident(first, Pages::BLOCK);
            return;
        }
        let mut page = first;
        while page < end {
            if page < walk.run_end {
                let n = walk.run_end.min(end) - page;
                walk.runs += n.bytes().0;
                walk.runs_untouched += n.bytes().0 - resident(page, n);
                page += n;
                continue;
            }
            match window.class_of(page) {
                class if heads_run(class) => {
                    // If it has just been freed, that is an old length or another's: these are figures.
                    walk.run_end = page + window.run_pages(page).clamp(Pages(1), MAX_RUN);
                }
                class => {
                    let slab = if class == NOTHING { None } else { self.slab_usage(page, class, pages) };
                    if let Some((slab, n)) = slab {
                        walk.slabs.out += slab.out;
                        walk.slabs.out_untouched += slab.out_untouched;
                        walk.slabs.resident += slab.resident;
                        walk.slabs.free_resident += slab.free_resident;
                        page += n;
                    } else {
                        // Free, isolated, or on its way from or to the zone.
                        walk.free += resident(page, Pages(1));
                        page += Pages(1);
                    }
                }
            }
        }
    }

    /// Usage of the slab that begins at `page`, and its pages.
    fn slab_usage(&self, page: PageNo, class: Class, pages: &BlockPages) -> Option<(SlabUsage, Pages)> {
        let number = self.number_of(class, page).filter(|&number| self.table.contains(number))?;
        let cache = self.table.get(number);
        let g = cache.shape.get();
        if g.pages == 0 {
            return None;
        }
        // A slab begins at a multiple of the power of two above its length, which is 32 at most: inside one word.
        let (word, bit) = (page.in_block() / 64, page.in_block() % 64);
        let resident = pages.is_measured.then_some((pages.resident.0[word] >> bit) as u32);
        let node = self.pages.normal.node_of(page);
        let domain = cache.domains().nth(node).or_else(|| cache.domains().next())?;
        let slabs = domain.slabs.lock(&self.pages.platform);
        Some((slabs.usage_of(&self.pages.normal, &g, page, resident)?, g.slab_pages()))
    }

    /// Bytes of objects in CPUs' buckets, in depots, and isolated. O(caches * CPUs).
    fn cached_bytes(&self) -> usize {
        let of = |number: usize, cache: &Cache| {
            let domains = cache.domains().map(|domain| {
                let in_depot = domain.depot.lock(&self.pages.platform).objects;
                in_depot + domain.slabs.lock(&self.pages.platform).isolated
            });
            (domains.sum::<usize>() + self.cpu.held(class_of_number(number)).0) * cache.shape.get().size as usize
        };
        let has_slabs = |&number: &usize| !run_class::contains(class_of_number(number));
        self.table.numbers().filter(has_slabs).map(|number| of(number, self.table.get(number))).sum()
    }
}

impl<P: Platform> Measured for Caches<P> {
    fn publish(&self, figures: &mut Figures, waits: bool) {
        let p = &self.pages.platform;
        let cached_runs = self.cached_runs();
        figures.idle += cached_runs;
        figures.cached_runs += cached_runs;
        for number in self.table.numbers().filter(|&number| !run_class::contains(class_of_number(number))) {
            let cache = self.table.get(number);
            let g = cache.shape.get();
            let mut cached = self.cpu.held(g.class()).0;
            let (mut out, mut resident, mut empty) = (0, Bytes::ZERO, Bytes::ZERO);
            for domain in cache.domains() {
                let depot = if waits { Some(domain.depot.lock(p)) } else { domain.depot.try_lock(p) };
                let in_depot = depot.map(|depot| depot.objects);
                let slabs = if waits { Some(domain.slabs.lock(p)) } else { domain.slabs.try_lock(p) };
                let (Some(in_depot), Some(slabs)) = (in_depot, slabs) else {
                    figures.is_partial = true;
                    continue;
                };
                cached += in_depot + slabs.isolated;
                out += (slabs.slabs * usize::from(g.objects)).saturating_sub(slabs.free);
                empty += g.slab_pages().bytes() * slabs.empty;
                resident += slabs.resident_bytes(&g);
                figures.slabs += g.slab_pages().bytes() * slabs.slabs;
            }
            let of = |objects: usize| Bytes(g.size as usize) * objects;
            let free = resident.saturating_sub(of(out));
            let cached = cached.min(out);
            figures.objects_out += out;
            figures.live += of(out - cached);
            figures.idle += of(cached) + empty.min(free);
            figures.fragmented += free - empty.min(free);
        }
    }

    /// Resident bytes of CPUs' buckets, of the memory of depots' buckets, of further nodes' domains, and of
    /// caches without buckets.
    fn metadata(&self) -> usize {
        let of = |run: Run| resident_bytes(&self.pages.platform, run).unwrap_or(run.len);
        let cpus = self.cpu.all().map(|slab| of(Run { addr: core::ptr::from_ref(slab).addr(), len: SLAB_BYTES }));
        let next = |group: &usize| self.stash.lock(&self.pages.platform).group_after(Some(*group));
        let first = self.stash.lock(&self.pages.platform).group_after(None);
        let groups = core::iter::successors(first, next).map(|addr| of(Run { addr, len: GROUP }));
        let domains = self.domain_runs().map(of);
        let table = self.table.chunk_runs().map(of);
        cpus.sum::<usize>() + groups.sum::<usize>() + domains.sum::<usize>() + table.sum::<usize>()
    }
}
