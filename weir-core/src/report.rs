//! The reporter: free pages handed to whoever is below, in small isolated batches.
//!
//! # The protocol
//!
//! Under the zone lock at most [`BATCH`] pageblocks are *isolated*: their free backed pages stop being free, so that
//! nobody can allocate them. The lock is dropped, the platform releases them in as few calls as it can, the lock is
//! taken again and the pages are free once more, those of them marked reported that the platform took.
//!
//! The interleaving this excludes: a page is read as free, an allocation takes it and the program writes to it, and
//! then the release wipes it. Isolated pages cannot be taken; and as an allocation that finds nothing else grows the
//! zone, isolation never makes one fail. A fork waits for the batches in flight, one a node at most
//! ([`crate::balancer`] holds their locks), so no child is born with pages isolated for good. Whoever switches reports
//! off waits for them too ([`Heap::set_reporting`]): each batch looks at the switch under its lock.
//!
//! # What is refused
//!
//! A run that the platform does not take (locked pages are in it) is tried once more by the pageblock; what is refused
//! then stays as it was, on a list apart, so that the others are not held up. It is tried again after it was handed
//! out, or under pressure. After `GIVE_UP` refusals in a batch nothing of it is tried any more: all memory is locked.

use crate::buddy::{Backing, PageSet};
use crate::heap::{Heap, Space};
use crate::lock::Lock;
use crate::object_cache::Domain;
use crate::page::{PAGE, PAGEBLOCK, PAGEBLOCK_PAGES, Window};
use crate::platform::{Below, Contents, Platform, Run};
use crate::refault::stamp;
use crate::slab::{Isolated, Pass};
use crate::stats::{self, Cause};
use crate::trace::{Event, Kind, Place};
use crate::zone::{FreeAreas, Gone, Zone};

/// Pageblocks isolated from a zone at a time (Linux page hinting: 16).
pub const BATCH: usize = 16;
/// Runs handed to the platform in one call.
const RUNS: usize = 128;
/// Refusals in a batch after which nothing more of it is tried.
const GIVE_UP: usize = 8;

/// Why and how far a report goes.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Who asked.
    pub cause: Cause,
    /// The dearest backing whose free pages go back one by one.
    pub split: Backing,
}

/// Collects runs and releases them a callful at a time.
struct Releaser<'a, P: Platform, B: Below + ?Sized, F: FnMut(Run)> {
    platform: &'a P,
    below: &'a B,
    calm: bool,
    runs: [Run; RUNS],
    len: usize,
    bytes: u64,
    ns: u64,
    contents: Contents,
    error: u32,
    refusals: usize,
    /// Told of each run that stays.
    refused: F,
}

impl<'a, P: Platform, B: Below + ?Sized, F: FnMut(Run)> Releaser<'a, P, B, F> {
    fn new(platform: &'a P, below: &'a B, cause: Cause, refused: F) -> Self {
        let (runs, calm, contents) = ([Run::default(); RUNS], cause == Cause::Idle, Contents::Zero);
        Self { platform, below, calm, runs, len: 0, bytes: 0, ns: 0, contents, error: 0, refusals: 0, refused }
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
        let runs = self.runs;
        let mut left = &runs[..core::mem::take(&mut self.len)];
        if left.is_empty() {
            return;
        }
        let begin = self.platform.now();
        while !left.is_empty() {
            left = &left[self.release(left)..];
            if let Some((&run, rest)) = left.split_first() {
                self.release_by_pageblock(run);
                left = rest;
            }
        }
        self.ns += self.platform.now().saturating_sub(begin);
    }

    /// Releases `runs` up to the first that is refused; returns how many went.
    fn release(&mut self, runs: &[Run]) -> usize {
        if self.refusals >= GIVE_UP {
            return 0;
        }
        let stats = self.platform.stats();
        stats::add(&stats.reports, 1);
        let released = self.below.release(runs, self.calm);
        self.bytes += runs[..released.runs].iter().map(|run| run.len as u64).sum::<u64>();
        if released.contents == Contents::Undefined {
            self.contents = Contents::Undefined;
        }
        if released.runs < runs.len() {
            stats::add(&stats.report_failures, 1);
            (self.error, self.refusals) = (released.error, self.refusals + 1);
        }
        released.runs
    }

    /// A run over many pageblocks was refused: those of them that are not go nevertheless.
    fn release_by_pageblock(&mut self, run: Run) {
        let (mut addr, end) = (run.addr, run.addr + run.len);
        while addr < end {
            let len = (PAGEBLOCK - addr % PAGEBLOCK).min(end - addr);
            let part = Run { addr, len };
            if len == run.len || self.release(&[part]) == 0 {
                (self.refused)(part);
            }
            addr += len;
        }
    }

    /// What the batch came to, and what the system below makes of its pages.
    fn finish(mut self, event: Event, horizon: u64) -> (Event, Gone) {
        self.flush();
        let end = self.platform.now();
        let stats = self.platform.stats();
        stats::add(&stats.report_ns, self.ns);
        let event = Event { end, bytes: self.bytes, ns: self.ns, error: self.error, ..event };
        stats.trace.record(&event);
        (event, Gone { contents: self.contents, at: stamp(end), horizon: stamp(horizon), calm: self.calm })
    }
}

/// A zone, and all that a report of it needs.
pub(crate) struct Site<'a, P: Platform, B: Below + ?Sized> {
    pub(crate) platform: &'a P,
    pub(crate) below: &'a B,
    pub(crate) in_flight: &'a Lock<(), 0>,
    pub(crate) window: &'a Window,
    pub(crate) zone: &'a Zone,
    pub(crate) place: Place,
    pub(crate) number: u16,
}

impl<P: Platform, B: Below + ?Sized> Site<'_, P, B> {
    /// Reports whole free pageblocks until at most `keep` idle pages are left; returns bytes.
    pub(crate) fn report_whole(&self, want: Want, keep: usize) -> usize {
        self.report_blocks(want, Kind::Whole, keep, |zone| zone.whole_idle())
    }

    /// The same of the free runs of partly free pageblocks, those unchanged for longest first.
    pub(crate) fn report_runs(&self, want: Want, keep: usize) -> usize {
        if self.below.release_unit() > PAGE {
            return 0;
        }
        let all = [Backing::Small, Backing::SparseHuge, Backing::Huge];
        let of = |&backing| self.report_blocks(want, Kind::Runs, keep, |zone| zone.next_hint(backing));
        all[..=want.split as usize].iter().map(of).sum()
    }

    /// Reports the free pages of pageblock `block` alone.
    pub(crate) fn report_block(&self, want: Want, block: u32) -> usize {
        let has_idle = |zone: &FreeAreas| zone.has_idle(self.window, block).then_some(block);
        self.report_batch(want, Kind::Runs, 1, has_idle)
    }

    /// Reports the pageblocks that `next` names until at most `keep` idle pages are left in the zone.
    fn report_blocks(&self, want: Want, kind: Kind, keep: usize, next: impl Fn(&FreeAreas) -> Option<u32>) -> usize {
        let mut bytes = 0;
        // What is freed meanwhile waits for the next report, so that this one ends.
        let mut left = self.zone.lock(self.platform).idle.saturating_sub(keep);
        while left > 0 {
            let got = self.report_batch(want, kind, left, &next);
            bytes += got;
            left = left.saturating_sub(got / PAGE);
            if got == 0 {
                break;
            }
        }
        bytes
    }

    fn report_batch(&self, want: Want, kind: Kind, limit: usize, next: impl Fn(&FreeAreas) -> Option<u32>) -> usize {
        let _in_flight = self.in_flight.lock(self.platform);
        let tunables = self.platform.tunables();
        if tunables.report.get() == 0 {
            return 0;
        }
        let mut batch = [(0u32, PageSet::EMPTY); BATCH];
        let (mut n, mut pages) = (0, 0);
        let max = (tunables.report_batch.get() as usize).clamp(1, BATCH);
        let mut areas = self.zone.lock(self.platform);
        while n < max && pages < limit {
            let Some(block) = next(&areas) else { break };
            let idle = areas.isolate(self.window, block);
            batch[n] = (block, idle);
            (n, pages) = (n + 1, pages + idle.len());
        }
        drop(areas);
        if n == 0 {
            return 0;
        }
        self.release_batch(want, kind, &batch[..n])
    }

    /// Releases what is isolated, and puts it back.
    fn release_batch(&self, want: Want, kind: Kind, batch: &[(u32, PageSet)]) -> usize {
        let mut kept = [PageSet::EMPTY; BATCH];
        let page_of = |addr: usize| self.window.page_of(addr).unwrap_or(0);
        let refused = |run: Run| {
            let (page, n) = (page_of(run.addr) as usize, run.len / PAGE);
            let at = batch.iter().position(|&(block, _)| block as usize == page / PAGEBLOCK_PAGES);
            at.into_iter().for_each(|i| kept[i].insert(page % PAGEBLOCK_PAGES, n));
        };
        let mut releaser = Releaser::new(self.platform, self.below, want.cause, refused);
        for (block, set) in batch {
            let mut at = 0;
            while let Some((first, len)) = set.next_run(at) {
                let page = block * PAGEBLOCK_PAGES as u32 + first as u32;
                releaser.add(Run { addr: self.window.addr_of(page), len: len * PAGE });
                at = first + len;
            }
        }
        let (event, how) = releaser.finish(self.event(want, kind, batch.len()), horizon(self.platform));
        let stats = self.platform.stats();
        stats::add(&stats.given_back[want.cause as usize], event.bytes);
        let mut areas = self.zone.lock(self.platform);
        for ((block, set), kept) in batch.iter().zip(&kept) {
            let gone = set.minus(kept);
            let huge = areas.put_back(self.window, *block, set, &gone, how);
            if huge && !gone.is_empty() {
                let whole = gone.len() == PAGEBLOCK_PAGES;
                stats::add(if whole { &stats.huge_kept } else { &stats.huge_split }, 1);
            }
        }
        event.bytes as usize
    }

    fn event(&self, want: Want, kind: Kind, blocks: usize) -> Event {
        event(self.place, self.number, want.cause, kind, blocks)
    }
}

/// An event that nothing is known of yet but what it is about.
pub(crate) fn event(place: Place, zone: u16, cause: Cause, kind: Kind, blocks: usize) -> Event {
    Event { end: 0, place, zone, kind, cause, blocks: blocks as u16, bytes: 0, ns: 0, error: 0 }
}

/// For how long a report is recent, ns.
pub(crate) fn horizon<P: Platform>(platform: &P) -> u64 {
    platform.tunables().refault_ms.get() * 1_000_000
}

impl<P: Platform> Heap<P> {
    /// Reports whole free pageblocks of every zone but for `keep` pages of each; returns bytes.
    pub(crate) fn report_whole(&self, want: Want, keep: impl Fn(usize) -> usize) -> usize {
        self.each_zone(|site, i| site.report_whole(want, keep(i)))
    }

    /// Reports the free runs of partly free pageblocks, those unchanged for longest first; returns bytes.
    pub(crate) fn report_runs(&self, want: Want, keep: impl Fn(usize) -> usize) -> usize {
        self.each_zone(|site, i| site.report_runs(want, keep(i)))
    }

    pub(crate) fn each_zone(&self, mut f: impl FnMut(&Site<P, P>, usize) -> usize) -> usize {
        let nodes = self.nodes();
        (0..2 * nodes).map(|i| f(&self.site(i / nodes == 1, i % nodes), i)).sum()
    }

    pub(crate) fn site(&self, low: bool, node: usize) -> Site<'_, P, P> {
        let space: &Space = if low { &self.low } else { &self.normal };
        Site {
            platform: &self.platform,
            below: &self.platform,
            in_flight: self.balancer.in_flight(node),
            window: &space.window,
            zone: &space.zones[node],
            place: if low { Place::Low32 } else { Place::Normal },
            number: node as u16,
        }
    }

    /// Switches reports on or off, as the tunable `report` does; but when this returns, nothing is in flight that was
    /// begun before it was switched off, and nothing will be: all that is free can be allocated, and only what was
    /// taken below is marked so.
    pub fn set_reporting(&self, on: bool) {
        self.platform.tunables().report.set(on.into());
        if on {
            self.note_idle(usize::MAX / 2);
        } else {
            self.balancer.pass_batches(&self.platform);
        }
    }

    /// Reports free pages inside partial slabs: of those that `pass` looks at. Returns bytes. O(slabs that changed),
    /// but for [`Pass::Changed`] O(slabs whose huge pages were kept) more.
    pub(crate) fn report_slabs(&self, want: Want, pass: Pass) -> usize {
        (0..self.nodes()).map(|node| self.report_slabs_of(node, want, pass)).sum()
    }

    /// The same of one node's slabs.
    pub(crate) fn report_slabs_of(&self, node: usize, want: Want, pass: Pass) -> usize {
        let mut bytes = 0;
        if self.platform.release_unit() > PAGE {
            return 0;
        }
        for class in self.reclaimable().from(0) {
            let cache = &self.caches[class];
            // Free objects of some caches keep their contents.
            if cache.made.keeps_pages() {
                continue;
            }
            let Some(domain) = cache.domains().nth(node) else { continue };
            let mut more = domain.slabs.lock(&self.platform).due(pass);
            while more {
                let (got, left) = self.report_slab_batch((class, node), domain, want, pass);
                bytes += got;
                more = left;
            }
        }
        bytes
    }

    fn node_of(&self, page: u32) -> usize {
        // SAFETY: a pageblock is named by a page of its own; its node never changes.
        unsafe { (*self.normal.window.block(page / PAGEBLOCK_PAGES as u32)).node as usize }
    }

    fn note_split(&self, page: u32, contents: Contents) {
        let (window, block) = (&self.normal.window, page / PAGEBLOCK_PAGES as u32);
        if self.normal.zones[self.node_of(page)].lock(&self.platform).split(window, block, contents) {
            stats::add(&self.platform.stats().huge_split, 1);
        }
    }

    /// One batch: its bytes, and whether there is more to look at.
    fn report_slab_batch(
        &self,
        (class, node): (usize, usize),
        domain: &Domain,
        want: Want,
        pass: Pass,
    ) -> (usize, bool) {
        let _in_flight = self.balancer.batch(&self.platform, node);
        if self.platform.tunables().report.get() == 0 || !self.is_reclaimable(class) {
            return (0, false);
        }
        let g = self.caches[class].shape.get();
        let window = &self.normal.window;
        let mut batch = [Isolated::default(); RUNS / 4];
        let backing = |page: u32| {
            // SAFETY: a pageblock is named by a page of its own. It may change meanwhile: then a huge page is
            // split, or kept, one pass too early; nothing else depends on it.
            unsafe { (*window.block(page / PAGEBLOCK_PAGES as u32)).backing() }
        };
        let (n, more) = domain.slabs.lock(&self.platform).isolate(window, &g, &mut batch, (want.split, pass), backing);
        let batch = &batch[..n];
        if n == 0 {
            return (0, more);
        }
        let mut kept = [0u32; RUNS / 4];
        let refused = |run: Run| {
            for addr in (run.addr..run.addr + run.len).step_by(PAGE) {
                let page = window.page_of(addr).unwrap_or(0);
                let is_in =
                    |slab: &Isolated| page.checked_sub(slab.page).is_some_and(|i| i < 32 && slab.pages >> i & 1 == 1);
                let at = batch.iter().position(is_in);
                at.into_iter().for_each(|i| kept[i] |= 1 << (page - batch[i].page));
            }
        };
        let mut releaser = Releaser::new(&self.platform, &self.platform, want.cause, refused);
        for slab in batch {
            for i in (0..32).filter(|i| slab.pages >> i & 1 == 1) {
                releaser.add(Run { addr: window.addr_of(slab.page + i), len: PAGE });
            }
        }
        let event = event(Place::Normal, node as u16, want.cause, Kind::Slabs, n);
        let (event, how) = releaser.finish(event, horizon(&self.platform));
        stats::add(&self.platform.stats().given_back[want.cause as usize], event.bytes);
        for (slab, kept) in batch.iter().zip(kept) {
            let gone = slab.pages & !kept;
            if gone != 0 {
                self.note_split(slab.page, how.contents);
            }
            domain.slabs.lock(&self.platform).put_back(window, &g, *slab, gone, how);
        }
        self.give_empty(&self.caches[class], domain);
        (event.bytes as usize, more)
    }
}
