//! The reporter: free pages handed to whoever is below, in small isolated batches (002).
//!
//! # The protocol
//!
//! Under the zone lock at most [`BATCH`] pageblocks are *isolated*: their free backed pages stop being free, so that
//! nobody can allocate them. The lock is dropped, the platform releases them in as few calls as it can, the lock is
//! taken again and the pages are free once more, marked reported if the release succeeded.
//!
//! The interleaving this excludes: a page is read as free, an allocation takes it and the program writes to it, and
//! then the release wipes it. Isolated pages cannot be taken; and as an allocation that finds nothing else grows the
//! zone, isolation never makes one fail. A fork waits for the batch in flight ([`crate::balancer`] holds its lock),
//! so no child is born with pages isolated for good.

use crate::buddy::{Backing, PageSet};
use crate::heap::{Heap, Space};
use crate::object_cache::Domain;
use crate::page::{PAGE, PAGEBLOCK_PAGES};
use crate::platform::{Platform, Run};
use crate::slab::Isolated;
use crate::stats::{self, Cause};
use crate::zone::Zone;

/// Pageblocks isolated from a zone at a time (002: 16).
pub const BATCH: usize = 16;
/// Runs handed to the platform in one call.
const RUNS: usize = 128;

/// Why and how far a report goes.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Who asked.
    pub cause: Cause,
    /// The dearest backing whose free pages go back one by one.
    pub split: Backing,
}

/// Collects runs and releases them a callful at a time.
struct Releaser<'a, P: Platform> {
    platform: &'a P,
    runs: [Run; RUNS],
    len: usize,
    failed: bool,
    bytes: usize,
}

impl<'a, P: Platform> Releaser<'a, P> {
    fn new(platform: &'a P) -> Self {
        Self { platform, runs: [Run::default(); RUNS], len: 0, failed: false, bytes: 0 }
    }

    fn add(&mut self, run: Run) {
        if let Some(last) = self.runs[..self.len].last_mut()
            && last.addr + last.len == run.addr
        {
            last.len += run.len;
        } else {
            if self.len == RUNS {
                self.flush();
            }
            self.runs[self.len] = run;
            self.len += 1;
        }
    }

    fn flush(&mut self) {
        let runs = &self.runs[..self.len];
        if runs.is_empty() || self.failed {
            self.len = 0;
            return;
        }
        let stats = self.platform.stats();
        let begin = self.platform.now();
        let done = self.platform.release(runs);
        stats::add(&stats.report_ns, self.platform.now().saturating_sub(begin));
        stats::add(&stats.reports, 1);
        if done < runs.len() {
            stats::add(&stats.report_failures, 1);
            self.failed = true;
        } else {
            self.bytes += runs.iter().map(|r| r.len).sum::<usize>();
        }
        self.len = 0;
    }
}

impl<P: Platform> Heap<P> {
    /// Reports whole free pageblocks of every zone but for `keep` pages of each; returns bytes.
    pub(crate) fn report_whole(&self, want: Want, keep: impl Fn(usize) -> usize) -> usize {
        self.each_zone(|space, zone, i| {
            let keep = keep(i);
            self.report_blocks(space, zone, want, keep, |zone| zone.whole_idle())
        })
    }

    /// Reports the free runs of partly free pageblocks, those unchanged for longest first; returns bytes.
    pub(crate) fn report_runs(&self, want: Want, keep: impl Fn(usize) -> usize) -> usize {
        let all = [Backing::Small, Backing::SparseHuge, Backing::Huge];
        let backings = &all[..=want.split as usize];
        self.each_zone(|space, zone, i| {
            let report = |&backing| self.report_blocks(space, zone, want, keep(i), |zone| zone.next_hint(backing));
            backings.iter().map(report).sum()
        })
    }

    fn each_zone(&self, mut f: impl FnMut(&Space, &Zone, usize) -> usize) -> usize {
        let nodes = self.nodes();
        let spaces = [&self.normal, &self.low];
        (0..2 * nodes).map(|i| f(spaces[i / nodes], &spaces[i / nodes].zones[i % nodes], i)).sum()
    }

    /// Reports the pageblocks that `next` names until at most `keep` idle pages are left in the zone.
    fn report_blocks(
        &self,
        space: &Space,
        zone: &Zone,
        want: Want,
        keep: usize,
        next: impl Fn(&crate::zone::FreeAreas) -> Option<u32>,
    ) -> usize {
        let mut bytes = 0;
        // What is freed meanwhile waits for the next report, so that this one ends.
        let mut left = zone.lock(&self.platform).idle.saturating_sub(keep);
        while left > 0 {
            let (pages, ok) = self.report_batch(space, zone, left, &next);
            bytes += pages * PAGE;
            left = left.saturating_sub(pages);
            if pages == 0 || !ok {
                break;
            }
        }
        stats::add(&self.platform.stats().given_back[want.cause as usize], bytes as u64);
        bytes
    }

    fn report_batch(
        &self,
        space: &Space,
        zone: &Zone,
        limit: usize,
        next: &impl Fn(&crate::zone::FreeAreas) -> Option<u32>,
    ) -> (usize, bool) {
        let _in_flight = self.balancer.batch(&self.platform);
        let mut batch = [(0u32, PageSet::EMPTY); BATCH];
        let (mut n, mut pages) = (0, 0);
        let max = (self.platform.tunables().report_batch.get() as usize).clamp(1, BATCH);
        let mut areas = zone.lock(&self.platform);
        while n < max && pages < limit {
            let Some(block) = next(&areas) else { break };
            let idle = areas.isolate(&space.window, block);
            batch[n] = (block, idle);
            (n, pages) = (n + 1, pages + idle.len());
        }
        drop(areas);
        let batch = &batch[..n];
        let mut releaser = Releaser::new(&self.platform);
        for (block, set) in batch {
            let mut at = 0;
            while let Some((first, len)) = set.next_run(at) {
                let page = block * PAGEBLOCK_PAGES as u32 + first as u32;
                releaser.add(Run { addr: space.window.addr_of(page), len: len * PAGE });
                at = first + len;
            }
        }
        releaser.flush();
        let gone = !releaser.failed;
        let mut areas = zone.lock(&self.platform);
        for (block, set) in batch {
            let huge = areas.put_back(&space.window, *block, set, gone);
            if gone && huge {
                let whole = set.len() == PAGEBLOCK_PAGES;
                let stats = self.platform.stats();
                stats::add(if whole { &stats.huge_kept } else { &stats.huge_split }, 1);
            }
        }
        (if gone { pages } else { 0 }, gone)
    }

    /// Reports free pages inside partial slabs: of those that stood unchanged since the last call, or of all if
    /// `now`. Returns bytes.
    pub(crate) fn report_slabs(&self, want: Want, now: bool) -> usize {
        let mut bytes = 0;
        for class in self.reclaimable().from(0) {
            let cache = &self.caches[class];
            // Free objects of some caches keep their contents.
            if cache.made.keeps_pages() {
                continue;
            }
            for domain in cache.domains().filter(|domain| domain.slabs.lock(&self.platform).due(now)) {
                loop {
                    let got = self.report_slab_batch(class, domain, want);
                    bytes += got;
                    if got == 0 {
                        break;
                    }
                }
            }
        }
        stats::add(&self.platform.stats().given_back[want.cause as usize], bytes as u64);
        bytes
    }

    fn note_split(&self, page: u32) {
        let (window, block) = (&self.normal.window, page / PAGEBLOCK_PAGES as u32);
        // SAFETY: a pageblock is named by a page of its own; its node never changes.
        let node = unsafe { (*window.block(block)).node } as usize;
        if self.normal.zones[node].lock(&self.platform).split(window, block) {
            stats::add(&self.platform.stats().huge_split, 1);
        }
    }

    fn report_slab_batch(&self, class: usize, domain: &Domain, want: Want) -> usize {
        let _in_flight = self.balancer.batch(&self.platform);
        if !self.is_reclaimable(class) {
            return 0;
        }
        let g = self.caches[class].shape.get();
        let window = &self.normal.window;
        let mut batch = [Isolated::default(); RUNS / 4];
        let may = |page: u32| {
            // SAFETY: a pageblock is named by a page of its own. It may change meanwhile: then a huge page is
            // split, or kept, one pass too early; nothing else depends on it.
            unsafe { (*window.block(page / PAGEBLOCK_PAGES as u32)).backing() as u8 <= want.split as u8 }
        };
        let n = domain.slabs.lock(&self.platform).isolate(window, &g, &mut batch, may);
        let mut releaser = Releaser::new(&self.platform);
        for slab in &batch[..n] {
            for i in (0..32).filter(|i| slab.pages >> i & 1 == 1) {
                releaser.add(Run { addr: window.addr_of(slab.page + i), len: PAGE });
            }
        }
        releaser.flush();
        let gone = !releaser.failed;
        for slab in &batch[..n] {
            if gone {
                self.note_split(slab.page);
            }
            domain.slabs.lock(&self.platform).put_back(window, &g, *slab, gone);
        }
        if n > 0 {
            self.give_empty(&self.caches[class], domain);
        }
        if gone { releaser.bytes } else { 0 }
    }
}
