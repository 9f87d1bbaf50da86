//! A pass over the heap: sparse pages that have not changed are grouped and filled, and the kernel is told where they lie.
//!
//! The heap is gone over in parts, each under the first node's batch lock. So no cache goes meanwhile, no pageblock that is in
//! use is unmapped, and no fork's child keeps the memory of a pass. Which pages are sparse is found slab by slab. Grouping goes
//! on beside the program. Then each page is filled under the lock of its slabs ([`super::fill`]). Pages that are not resident
//! stay so, and those of a huge page are left to [`crate::huge_pages`], which splits it first. Pages that a forked child has too,
//! or the parent, are left alone: to fill one copies it, and what the others have stays.
//!
//! **Not between processes.** The kernel merges what is equal, in whichever process it lies. By the time of a write one can tell
//! whether a page was merged. So each group has random words of this process wherever no page of it has an object. With the
//! setting 1 no group is filled up without such a place. The kernel is asked for ranges that hold pages of groups and, in
//! between, pages without memory. It is asked for no page that holds something else. A range costs up to two mappings, so there
//! are [`MOST`](super::asked::MOST) at most. What the program puts into such a range later is compared as well, until a pass that
//! finds nothing merged takes the ranges back.

use core::ops::Range;
use core::sync::atomic::AtomicU64;

use super::fill;
use super::group::{Candidate, Group, group};
use super::merger::Merger;
use crate::base::backing::Backing;
use crate::base::run::Run;
use crate::base::units::{BlockNo, Class, MAX_RUN, Order, PAGE, PAGEBLOCK, PAGEBLOCK_PAGES, PageNo, Pages};
use crate::caches::cache::Cache;
use crate::caches::geometry::Geometry;
use crate::caches::slab::lists::SlabLists;
use crate::pages::node::ZoneKind;
use crate::pages::page_set::PageSet;
use crate::pages::window::{NOTHING, heads_run};
use crate::platform::Platform;

/// Pages that are grouped at a time, and pageblocks that are gone over for them.
const PAGES: usize = 32 << 10;
const BLOCKS: usize = 512;
/// Groups that are open at a time.
const GROUPS: usize = 512;
/// Words of a page.
const WORDS: usize = PAGE / size_of::<u64>();
/// Purpose of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Merges what has not changed since the last pass.
    Merge,
    /// Counts what could be merged, changed or not.
    Count,
}

/// Result of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Bytes that go when the kernel merges what was filled, or would go.
    pub bytes: usize,
    /// Slabs that could be merged, but that have changed since the last pass.
    pub changed: usize,
}

/// Memory for a part of a pass.
#[repr(C)]
struct Workplace {
    candidates: [Candidate; PAGES],
    open: [Group; GROUPS],
    picture: [u64; WORDS],
    /// The pages that were filled, for each pageblock of the part.
    filled: [PageSet; BLOCKS],
}

/// A mapped [`Workplace`].
struct Mapped<'a, P: Platform> {
    platform: &'a P,
    run: Run,
}

impl<'a, P: Platform> Mapped<'a, P> {
    fn new(platform: &'a P) -> Option<Self> {
        let len = size_of::<Workplace>().next_multiple_of(PAGE);
        Some(Self { platform, run: Run { addr: platform.map(len, Order::PAGE).ok()?, len } })
    }

    fn get(&mut self) -> &mut Workplace {
        // SAFETY: the mapping is this value's alone and borrowed exclusively. It is as long as a `Workplace`, aligned to a page,
        // and was zero at first: all zeros is a value of each field.
        unsafe { &mut *(self.run.addr as *mut Workplace) }
    }
}

impl<P: Platform> Drop for Mapped<'_, P> {
    fn drop(&mut self) {
        self.platform.unmap(self.run);
    }
}

/// The words of the page at `addr`.
///
/// # Safety
/// It is a page of the heap that stays mapped while the reference lives.
unsafe fn words_of<'a>(addr: usize) -> &'a [AtomicU64] {
    // SAFETY: mapped as long as the caller says; aligned to a page. The program's own accesses to its objects on it are what the
    // module `fill` is about.
    unsafe { core::slice::from_raw_parts(addr as *const AtomicU64, WORDS) }
}

fn to_words(bytes: Range<usize>) -> Range<usize> {
    bytes.start / 8..bytes.end / 8
}

/// Places of a page that are in `set`, and the words of each.
fn places(g: &Geometry, place: usize, set: u64) -> impl Iterator<Item = Range<usize>> {
    let objects = g.objects_on(place);
    objects
        .enumerate()
        .filter(move |(i, _)| set >> i & 1 == 1)
        .map(move |(_, object)| to_words(g.bytes_on(object, place)))
}

/// Words of a page behind its last object.
fn tail(g: &Geometry, place: usize) -> Range<usize> {
    let end = g.objects_on(place).last().map_or(0, |object| g.bytes_on(object, place).end);
    to_words(end..PAGE)
}

/// Pages of equal geometry: of one cache, on one node, at places of slabs where objects lie the same.
fn kind_of(number: usize, node: usize, phase: usize) -> u64 {
    (number as u64) << 24 | (node as u64 & 0x7ffff) << 5 | phase as u64
}

fn of_kind(kind: u64) -> (usize, usize) {
    ((kind >> 24) as usize, (kind & 31) as usize)
}

impl<P: Platform> Merger<'_, P> {
    /// Goes over the whole heap.
    pub(super) fn pass(&self, work: Work) -> Found {
        let mut found = Found::default();
        let Some(secret) = self.platform().secret() else { return found };
        let mut random = Random(secret);
        let mut block = BlockNo(0);
        while block < self.end() {
            let _in_flight = self.caches.pages.batch(0);
            let Some(mut mapped) = Mapped::new(self.platform()) else { break };
            let part = Part { merger: self, work, at: mapped.get(), first: block, candidates: 0 };
            block = part.go(&mut random, &mut found);
        }
        found
    }

    fn end(&self) -> BlockNo {
        self.caches.pages.normal.top().block()
    }
}

/// Words that nobody else knows: by xorshift128+ from a secret of the process, new ones for each pass.
struct Random([u64; 2]);

impl Random {
    fn next(&mut self) -> u64 {
        let [mut a, b] = self.0;
        a ^= a << 23;
        self.0 = [b, a ^ b ^ a >> 18 ^ b >> 5];
        self.0[1].wrapping_add(b)
    }
}

/// A part of a pass.
struct Part<'a, 'b, P: Platform> {
    merger: &'b Merger<'a, P>,
    work: Work,
    at: &'b mut Workplace,
    first: BlockNo,
    candidates: usize,
}

impl<'a, P: Platform> Part<'a, '_, P> {
    /// Goes over pageblocks until there are enough pages, and deals with these; where the next part begins.
    fn go(mut self, random: &mut Random, found: &mut Found) -> BlockNo {
        let (end, mut block) = (self.merger.end().min(self.first.row(BLOCKS).end), self.first);
        while block < end && self.candidates + PAGEBLOCK_PAGES <= PAGES {
            found.changed += self.collect(block);
            block = block.next();
        }
        // What is made equal would not be merged where the kernel cannot be asked for it.
        if self.candidates > 0 && (self.work == Work::Count || !self.merger.state.asked.is_full()) {
            found.bytes += self.merge(random);
            self.tell(block);
        }
        block
    }

    /// Adds the sparse pages of a pageblock; returns how many slabs have some that changed of late.
    fn collect(&mut self, block: BlockNo) -> usize {
        let (caches, window) = (self.merger.caches, &self.merger.caches.pages.normal);
        let (begin, mut changed) = (self.candidates, 0);
        let zone = caches.pages.zone_of(ZoneKind::Normal, block.first()).lock(self.merger.platform());
        let is_empty = zone.page_states(window, block).is_none_or(|states| states.is_free);
        if is_empty || zone.backing(window, block) != Backing::Small {
            return 0;
        }
        drop(zone);
        let mut page = block.first();
        while page < block.next().first() {
            page += match window.class_of(page) {
                NOTHING => Pages(1),
                class if heads_run(class) => window.run_pages(page).clamp(Pages(1), MAX_RUN),
                class => self.collect_slab(page, class, &mut changed),
            };
        }
        if self.candidates > begin {
            self.keep_own(block, begin);
        }
        changed
    }

    /// Adds the sparse pages of the slab that begins at `page`; returns its pages.
    fn collect_slab(&mut self, page: PageNo, class: Class, changed: &mut usize) -> Pages {
        let caches = self.merger.caches;
        let number = caches.number_of(class, page).filter(|&number| caches.is_reclaimable(number));
        let Some(cache) = number.map(|number| caches.table.get(number)) else { return Pages(1) };
        let g = cache.shape.get();
        let pages = g.slab_pages().max(Pages(1));
        if !g.may_merge() || !cache.user.may_merge() {
            return pages;
        }
        let (window, node) = (&caches.pages.normal, caches.pages.normal.node_of(page));
        let begin = self.candidates;
        let mut slabs = caches.domain_of(cache, page).slabs.lock(self.merger.platform());
        if self.merger.forgets() {
            slabs.part(window, &g, page);
        }
        let is_still = slabs.look_for_sparse(window, &g, page, self.work == Work::Merge, |sparse| {
            let kind = kind_of(g.number as usize, node, g.phase_of(sparse.place));
            if let Some(to) = self.at.candidates.get_mut(self.candidates) {
                *to = Candidate::new(sparse.page, sparse.live, kind);
                self.candidates += 1;
            }
        });
        if is_still == Some(false) && self.work == Work::Merge {
            *changed += 1;
            self.candidates = begin;
        }
        pages
    }

    /// Drops those from the candidate `begin` on that have no memory, or share it with another process: the first cost nothing, and
    /// the others would cost a copy each.
    fn keep_own(&mut self, block: BlockNo, begin: usize) {
        let run = Run { addr: self.merger.caches.pages.normal.addr_of(block.first()), len: PAGEBLOCK };
        let own = self.merger.platform().own_pages(run).map_or(PageSet::EMPTY, PageSet);
        let mut kept = begin;
        for at in begin..self.candidates {
            let candidate = self.at.candidates[at];
            let place = candidate.page.in_block();
            if own.has_range(place..place + 1) {
                self.at.candidates[kept] = candidate;
                kept += 1;
            }
        }
        self.candidates = kept;
    }

    /// Groups the candidates and fills them; returns the bytes that go when the kernel has merged them.
    fn merge(&mut self, random: &mut Random) -> usize {
        let (merger, work, first) = (self.merger, self.work, self.first);
        let Workplace { candidates, open, picture, filled } = &mut *self.at;
        let mut bytes = 0;
        let most = |kind| merger.most_objects(kind);
        group(&mut candidates[..self.candidates], open, most, |candidates, group| {
            if work == Work::Count {
                bytes += (group.pages as usize - 1) * PAGE;
                return;
            }
            let pages = || group.pages_of(candidates);
            merger.paint(pages(), picture, random);
            bytes += merger.fill(pages(), picture, |page| {
                let place = page.in_block();
                filled[(page.block().0 - first.0) as usize].insert(place..place + 1);
            });
        });
        bytes
    }

    /// Asks the kernel to merge the pages that were filled, in ranges that hold nothing else with memory behind it. Where it cannot
    /// be asked, they leave their rings.
    fn tell(&self, end: BlockNo) {
        let merger = self.merger;
        let mut range: Option<Range<PageNo>> = None;
        for block in BlockNo::each(self.first..end) {
            let filled = self.at.filled[(block.0 - self.first.0) as usize];
            let pages = if filled.is_empty() { None } else { merger.caches.pages.block_pages(ZoneKind::Normal, block) };
            let Some(pages) = pages else {
                self.ask(range.take());
                continue;
            };
            for place in 0..PAGEBLOCK_PAGES {
                let page = block.page(place);
                if filled.has_range(place..place + 1) {
                    range = Some(range.take().map_or(page, |range| range.start)..page + Pages(1));
                } else if pages.resident.has_range(place..place + 1) {
                    self.ask(range.take());
                }
            }
        }
        self.ask(range);
    }

    fn ask(&self, range: Option<Range<PageNo>>) {
        let Some(range) = range else { return };
        if self.merger.ask(range.clone()) {
            return;
        }
        let mut page = range.start;
        while page < range.end {
            let (place, filled) = (page.in_block(), self.at.filled[(page.block().0 - self.first.0) as usize]);
            if filled.has_range(place..place + 1) {
                self.merger.leave(page);
            }
            page += Pages(1);
        }
    }
}

impl<'a, P: Platform> Merger<'a, P> {
    /// Takes a page that was filled, of a cache that is still there, out of its ring.
    fn leave(&self, page: PageNo) {
        let (caches, window) = (self.caches, &self.caches.pages.normal);
        let class = window.class_of(page);
        let number = if class == NOTHING || heads_run(class) { None } else { caches.number_of(class, page) };
        if let Some(number) = number {
            let cache = caches.table.get(number);
            let mut slabs = caches.domain_of(cache, page).slabs.lock(self.platform());
            slabs.leave_page(window, &cache.shape.get(), page, false);
        }
    }

    fn cache_of(&self, kind: u64) -> (&'a Cache, Geometry, usize) {
        let (number, phase) = of_kind(kind);
        let cache = self.caches.table.get(number);
        (cache, cache.shape.get(), phase)
    }

    /// Places of a group that may be in use: all, where there is room for random words elsewhere, or with the setting 2.
    fn most_objects(&self, kind: u64) -> u32 {
        let (_, g, phase) = self.cache_of(kind);
        let objects = g.objects_on(phase).len() as u32;
        let needs_room = tail(&g, phase).is_empty() && self.platform().tunables().merge.get() < 2;
        objects - u32::from(needs_room)
    }

    /// Does `f` with the slabs of a candidate under their lock, if it is as it was when it was chosen.
    fn with<R>(
        &self,
        page: &Candidate,
        f: impl FnOnce(&mut SlabLists, &Geometry, usize, &[AtomicU64]) -> R,
    ) -> Option<R> {
        let (cache, g, _) = self.cache_of(page.kind);
        let window = &self.caches.pages.normal;
        let mut slabs = self.caches.domain_of(cache, page.page).slabs.lock(self.platform());
        if !slabs.is_as_before(window, &g, page.page, page.live) {
            return None;
        }
        let place = (page.page - page.page.aligned_down(Order::of_pages(g.slab_pages()))).0;
        // SAFETY: a page of a slab that has an object in use. The lock is held without which no object of it goes back: so it
        // stays mapped.
        let words = unsafe { words_of(self.caches.pages.normal.addr_of(page.page)) };
        Some(f(&mut slabs, &g, place, words))
    }

    /// Makes the picture of a group: random words, and its pages' objects.
    fn paint<'c>(&self, pages: impl Iterator<Item = &'c Candidate>, picture: &mut [u64; WORDS], random: &mut Random) {
        picture.iter_mut().for_each(|word| *word = random.next());
        for page in pages {
            self.with(page, |_, g, place, words| {
                places(g, place, page.live).for_each(|object| fill::read(words, object, picture));
            });
        }
    }

    /// Fills the pages of a group, calls `filled` with each; returns the bytes that the kernel can merge.
    fn fill<'c>(
        &self,
        pages: impl Iterator<Item = &'c Candidate>,
        picture: &[u64; WORDS],
        mut filled: impl FnMut(PageNo),
    ) -> usize {
        let (window, mut n, mut last) = (&self.caches.pages.normal, 0, None);
        for page in pages {
            let done = self.with(page, |slabs, g, place, words| {
                places(g, place, !page.live).for_each(|object| fill::write(words, object, picture));
                fill::write(words, tail(g, place), picture);
                slabs.join(window, g, page.page, last.map(|last: &Candidate| last.page));
            });
            if done.is_some() {
                filled(page.page);
                (n, last) = (n + 1, Some(page));
            }
        }
        if let Some(last) = last {
            let (cache, g, _) = self.cache_of(last.kind);
            self.caches.domain_of(cache, last.page).slabs.lock(self.platform()).leave_page(window, &g, last.page, true);
        }
        Pages(n).saturating_sub(Pages(1)).length()
    }
}
