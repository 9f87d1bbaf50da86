//! What is larger than a size class: runs of pages from the zones, and blocks mapped on their own.

use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;

use crate::buddy::Backing;
use crate::density::is_filled;
use crate::heap::{Heap, MAX_NODES, MAX_RUN, Space};
use crate::mapped::{Block, Blocks, table_bytes};
use crate::page::{LARGE, MAX_ORDER, PAGE, PAGEBLOCK, PAGEBLOCK_PAGES, order_of};
use crate::platform::{Contents, Misuse, Platform, Run};
use crate::refault::{Again, stamp};
use crate::report::{Want, event, horizon};
use crate::stats::{self, Cause};
use crate::trace::{Event, Kind, Place};
use crate::zone::{PageRun, Purpose};

/// Longest block, bytes, mapped on its own that is made zero by writing: in a longer one few samples tell too little.
const WIPE_MAX: usize = 64 << 20;

/// How idle memory goes when other memory becomes resident in its place.
const ROOM: Want = Want { cause: Cause::Idle, split: Backing::SparseHuge };

impl<P: Platform> Heap<P> {
    /// A run or a mapped block, and whether it is known to be zero.
    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_large(&self, size: usize, align: usize) -> (*mut u8, bool) {
        stats::add(&self.platform.stats().large_allocs, 1);
        if size > isize::MAX as usize - PAGE || align > isize::MAX as usize / 2 {
            return (null_mut(), false);
        }
        let pages = size.div_ceil(PAGE);
        if pages > MAX_RUN || align > MAX_RUN * PAGE {
            // What is freed next may be this block's former copy.
            let home = self.platform.node().min(MAX_NODES - 1);
            self.normal.zones[home].lock(&self.platform).growth.take(pages, pages);
            return self.map_block(pages * PAGE, align.max(PAGE));
        }
        let Some(run) = self.take_pages(pages, order_of(align.div_ceil(PAGE)), Purpose::Run) else {
            return (null_mut(), false);
        };
        self.housekeeping();
        (mark_run(&self.normal, run, pages), run.zero)
    }

    /// Pages for a slab or a run, aligned to `align` (an order), from the caller's node first.
    pub(crate) fn take_pages(&self, pages: usize, align: u32, purpose: Purpose) -> Option<PageRun> {
        self.take_pages_in(&self.normal, pages, align, purpose).or_else(|| {
            self.reclaim_for_allocation();
            self.take_pages_in(&self.normal, pages, align, purpose)
        })
    }

    pub(crate) fn take_pages_in(&self, space: &Space, pages: usize, align: u32, purpose: Purpose) -> Option<PageRun> {
        let home = self.platform.node().min(MAX_NODES - 1);
        let huge = self.platform.huge_on_touch();
        let blocks = if align >= MAX_ORDER - 1 { 3 } else { pages.div_ceil(PAGEBLOCK_PAGES) };
        let take_of =
            |node: usize| space.zones[node].lock(&self.platform).take(&space.window, pages, align, purpose, huge);
        let take = || take_of(home);
        if let Some(run) = take().or_else(|| self.grow(space, home, blocks, take)) {
            return Some(self.taken(run, pages));
        }
        let nodes = self.platform.nodes().min(MAX_NODES);
        (0..nodes).filter(|&n| n != home).find_map(|node| Some(self.taken(take_of(node)?, pages)))
    }

    /// Grows the space until `take` finds what it wants; whoever had the turn before may have brought that.
    #[cold]
    fn grow(&self, space: &Space, node: usize, blocks: usize, take: impl Fn() -> Option<PageRun>) -> Option<PageRun> {
        let mut growing = space.window.growing(&self.platform);
        loop {
            if let Some(run) = take() {
                return Some(run);
            }
            let (first, count) = growing.grow(blocks, node)?;
            stats::add(&self.platform.stats().heap_bytes, (count * PAGEBLOCK) as u64);
            space.zones[node].lock(&self.platform).add(&space.window, first, count);
        }
    }

    fn taken(&self, run: PageRun, pages: usize) -> PageRun {
        stats::add(&self.platform.stats().used_bytes, (pages * PAGE) as u64);
        self.note_again(run.again);
        self.make_room(run.fresh);
        run
    }

    /// Releases idle memory for `fresh` pages that become resident elsewhere, as far as more is idle than peaks explain:
    /// free pages in pieces that nobody could use, and blocks kept in another form. Without it a heap whose sizes change
    /// would hold what it had before and what it has now. To be called under no lock.
    #[inline]
    pub(crate) fn make_room(&self, fresh: usize) {
        if fresh > 0 {
            self.make_room_for(fresh);
        }
    }

    #[cold]
    fn make_room_for(&self, fresh: usize) {
        let kept = self.mapped.lock(&self.platform).idle;
        let keep = kept.saturating_sub(fresh * PAGE);
        let mut left = fresh - (self.unmap_while(Cause::Idle, |blocks| blocks.drop_above(keep)) / PAGE).min(fresh);
        self.each_zone(|site, _| {
            let zone = site.zone.lock(&self.platform);
            let (surplus, idle) = (zone.surplus(self.platform.huge_on_touch()).min(left), zone.idle);
            drop(zone);
            let keep = idle - surplus;
            let bytes = if surplus > 0 { site.report_whole(ROOM, keep) + site.report_runs(ROOM, keep) } else { 0 };
            left -= (bytes / PAGE).min(left);
            bytes
        });
    }

    /// Releases idle pages for `fresh` pages of a block that is mapped on its own, as that cannot use them.
    fn make_room_in_zones(&self, fresh: usize) {
        let mut left = fresh;
        self.each_zone(|site, _| {
            let keep = site.zone.lock(&self.platform).idle.saturating_sub(left);
            let bytes = if left > 0 { site.report_whole(ROOM, keep) + site.report_runs(ROOM, keep) } else { 0 };
            left -= (bytes / PAGE).min(left);
            bytes
        });
    }

    /// Counts pages that were reported and are taken again, if that was soon. To be called under no lock.
    #[inline]
    pub(crate) fn note_again(&self, again: Again) {
        if again.pages > 0 {
            self.count_again(again);
        }
    }

    #[cold]
    fn count_again(&self, again: Again) {
        if again.is_soon(stamp(self.platform.now()), stamp(horizon(&self.platform))) {
            let (stats, bytes) = (self.platform.stats(), u64::from(again.pages) * PAGE as u64);
            stats::add(&stats.refault_bytes, bytes);
            if again.calm {
                stats::add(&stats.calm_refault_bytes, bytes);
            }
        }
    }

    /// Gives pages back to their zone; bit i of `reported`: page i of them is reported.
    pub(crate) fn give_pages(&self, page: u32, pages: usize, reported: u32) {
        give_pages_in(self, &self.normal, page, pages, reported);
    }

    // ---- blocks mapped on their own ----------------------------------------------------------------------------

    /// A block of its own, and whether it is known to be zero.
    pub(crate) fn map_block(&self, len: usize, align: usize) -> (*mut u8, bool) {
        if !self.mapped_room() {
            return (null_mut(), false);
        }
        // Room in the table is kept from here on.
        let kept = (align <= PAGE).then(|| self.reuse_block(len)).flatten();
        let fresh = || {
            // A smaller one makes room for this one: that is no report.
            self.unmap_those(Cause::Idle, |blocks| blocks.drop_for(len));
            self.make_room_in_zones(len / PAGE);
            let again = self.mapped.lock(&self.platform).recent.taken(len / PAGE);
            self.note_again(again);
            let map = || self.platform.map(len, align.max(PAGEBLOCK));
            let addr = map().or_else(|| {
                self.reclaim_for_allocation();
                map()
            })?;
            Some((Block { run: Run { addr, len }, huge: false }, true))
        };
        let Some((mut block, zero)) = kept.map(|block| (block, false)).or_else(fresh) else {
            self.mapped.lock(&self.platform).unreserve();
            return (null_mut(), false);
        };
        self.look_at_last();
        let wants_huge = self.mapped.lock(&self.platform).density.wants_huge();
        if wants_huge && !block.huge && self.platform.tunables().huge_blocks.get() != 0 {
            self.platform.advise_huge(block.run);
            block.huge = true;
        }
        let mut blocks = self.mapped.lock(&self.platform);
        blocks.insert(block);
        blocks.last = block;
        drop(blocks);
        stats::add(&self.platform.stats().mapped_bytes, block.run.len as u64);
        (block.run.addr as *mut u8, zero)
    }

    /// Learns from the block handed out before this one, if it is still in use: a program that fills its blocks as it
    /// gets them has filled that one.
    fn look_at_last(&self) {
        let last = core::mem::take(&mut self.mapped.lock(&self.platform).last);
        // It may be freed meanwhile, and its addresses be another's: then one wrong thing is learnt.
        if !last.huge
            && last.run.len > 0
            && let Some(filled) = is_filled(&self.platform, last.run)
        {
            self.mapped.lock(&self.platform).density.observe_in_use(filled);
        }
    }

    /// Makes a large block that was used before read as zero, as far as it is long.
    pub(crate) fn wipe(&self, block: *mut u8) {
        // SAFETY: the caller has just allocated it.
        let len = unsafe { self.usable_size(block) };
        let run = Run { addr: block as usize, len };
        // Writing zeros makes all of a block resident, of which the program may never touch more than a few pages (a
        // sparse table). Only a short block that was in full use is written to; any other is released, so that it is
        // as a fresh one.
        let write = len <= MAX_RUN * PAGE || len <= WIPE_MAX && is_filled(&self.platform, run) == Some(true);
        let zero = || {
            let released = self.platform.release(&[run], false);
            released.runs == 1 && released.contents == Contents::Zero
        };
        if write || !zero() {
            // SAFETY: a block of that length, the caller's.
            unsafe { core::ptr::write_bytes(block, 0, len) };
        }
    }

    /// A block freed a while ago, grown or cut to `len`.
    fn reuse_block(&self, len: usize) -> Option<Block> {
        let block = self.mapped.lock(&self.platform).reuse(len)?;
        let mut run = block.run;
        if run.len > len && run.len - len > len / 8 {
            self.platform.unmap(Run { addr: run.addr + len, len: run.len - len });
            run.len = len;
        }
        let len = run.len.max(len);
        let renewed = self.platform.renew(run, len);
        if renewed.is_none() {
            self.platform.unmap(run);
        }
        renewed.map(|addr| Block { run: Run { addr, len }, ..block })
    }

    /// Frees a block mapped on its own: it is kept for a while, if that costs no peak.
    pub(crate) fn free_mapped(&self, addr: usize) {
        let Some(block) = self.mapped.lock(&self.platform).remove(addr) else {
            return self.platform.misuse(Misuse::DoubleFree, addr, 0);
        };
        self.platform.stats().mapped_bytes.fetch_sub(block.run.len as u64, Relaxed);
        let filled = if block.huge { None } else { is_filled(&self.platform, block.run) };
        let mut blocks = self.mapped.lock(&self.platform);
        if let Some(filled) = filled {
            blocks.density.observe(filled);
        }
        if blocks.last.run.addr == addr {
            // Looked at already.
            blocks.last = Block::default();
        }
        let gone = blocks.keep(block);
        drop(blocks);
        if let Some(run) = gone {
            self.platform.unmap(run);
        }
        self.note_idle(block.run.len);
    }

    /// Unmaps the kept blocks that `next` names; returns their bytes.
    pub(crate) fn unmap_while(&self, cause: Cause, next: impl Fn(&mut Blocks) -> Option<Run>) -> usize {
        let (bytes, blocks, ns) = self.unmap_those(cause, next);
        if blocks > 0 {
            let (stats, end) = (self.platform.stats(), self.platform.now());
            let event = event(Place::Normal, 0, cause, Kind::Mapped, blocks);
            stats.trace.record(&Event { end, bytes: bytes as u64, ns, ..event });
            let (at, horizon) = (stamp(end), stamp(horizon(&self.platform)));
            let recent = &mut self.mapped.lock(&self.platform).recent;
            recent.reported(bytes / PAGE, at, cause == Cause::Idle, horizon);
        }
        bytes
    }

    /// The same unrecorded; returns bytes, blocks and ns.
    fn unmap_those(&self, cause: Cause, next: impl Fn(&mut Blocks) -> Option<Run>) -> (usize, usize, u64) {
        let (mut bytes, mut blocks, mut begin) = (0, 0, 0);
        loop {
            let run = next(&mut self.mapped.lock(&self.platform));
            let Some(run) = run else { break };
            if blocks == 0 {
                begin = self.platform.now();
            }
            self.platform.unmap(run);
            (bytes, blocks) = (bytes + run.len, blocks + 1);
        }
        if blocks == 0 {
            return (0, 0, 0);
        }
        stats::add(&self.platform.stats().given_back[cause as usize], bytes as u64);
        (bytes, blocks, self.platform.now() - begin)
    }

    /// Reserves room in the table for one block.
    fn mapped_room(&self) -> bool {
        loop {
            let reserved = self.mapped.lock(&self.platform).reserve();
            let Err(capacity) = reserved else { return true };
            let Some(table) = self.platform.map(table_bytes(capacity), PAGE) else { return false };
            let old = self.mapped.lock(&self.platform).rehash(table, capacity);
            if let Some(run) = old {
                self.platform.unmap(run);
            }
        }
    }

    pub(crate) fn remap(&self, addr: usize, len: usize, size: usize) -> *mut u8 {
        let Some(new_len) = size.checked_next_multiple_of(PAGE).filter(|&l| l <= isize::MAX as usize) else {
            return null_mut();
        };
        if new_len == len {
            return addr as *mut u8;
        }
        // Out of the table first: once moved, the old addresses may be another thread's new block.
        let Some(block) = self.mapped.lock(&self.platform).lift(addr) else {
            self.platform.misuse(Misuse::DoubleFree, addr, 0);
            return null_mut();
        };
        let moved = self.platform.remap(Run { addr, len }, new_len);
        let now = moved.map_or(Run { addr, len }, |addr| Run { addr, len: new_len });
        self.mapped.lock(&self.platform).insert(Block { run: now, ..block });
        let stat = &self.platform.stats().mapped_bytes;
        stat.fetch_add((now.len as u64).wrapping_sub(len as u64), Relaxed);
        match moved {
            Some(addr) => addr as *mut u8,
            // Programs do not expect that less may be refused: the block stays as long as it is.
            None if new_len < len => addr as *mut u8,
            None => null_mut(),
        }
    }
}

pub(crate) fn mark_run(space: &Space, run: PageRun, pages: usize) -> *mut u8 {
    // SAFETY: the run is the caller's, so is its head's descriptor.
    unsafe { *space.window.desc(run.page) = pages as u32 };
    space.window.set_class(run.page, 1, LARGE);
    space.window.addr_of(run.page) as *mut u8
}

/// Takes back a run; whether it is the former copy of a buffer that grows.
pub(crate) fn give_run<P: Platform>(heap: &Heap<P>, space: &Space, page: u32, pages: usize) -> bool {
    give_pages_in(heap, space, page, pages, 0);
    // SAFETY: as in `give_pages_in`.
    let node = unsafe { (*space.window.block(page / PAGEBLOCK_PAGES as u32)).node } as usize;
    space.zones[node].lock(&heap.platform).growth.give(pages)
}

pub(crate) fn give_pages_in<P: Platform>(heap: &Heap<P>, space: &Space, page: u32, pages: usize, reported: u32) {
    // A run of two pageblocks may span nodes' zones no more than a slab does: both halves came from one zone.
    // SAFETY: a pageblock is named by a page of its own; its node never changes.
    let node = unsafe { (*space.window.block(page / PAGEBLOCK_PAGES as u32)).node } as usize;
    space.zones[node].lock(&heap.platform).give(&space.window, page, pages, reported);
    heap.platform.stats().used_bytes.fetch_sub((pages * PAGE) as u64, Relaxed);
    heap.note_idle(pages * PAGE);
}
