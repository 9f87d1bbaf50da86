//! What is larger than a size class: runs of pages from the zones, and blocks mapped on their own.

use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;

use crate::buddy::Backing;
use crate::density::{Look, look};
use crate::heap::{Heap, MAX_NODES, MAX_RUN, Space};
use crate::mapped::{Block, Blocks, Kept, table_bytes};
use crate::page::{LARGE, MAX_ORDER, PAGE, PAGEBLOCK, PAGEBLOCK_PAGES, order_of};
use crate::platform::{Contents, Misuse, Platform, Run};
use crate::refault::{Again, stamp};
use crate::report::{Want, event, horizon};
use crate::stats::{self, Cause};
use crate::trace::{Event, Kind, Place};
use crate::zone::{FreeAreas, PageRun, Purpose};

/// Longest block, bytes, mapped on its own that is made zero by writing: in a longer one few samples tell too little.
const WIPE_MAX: usize = 64 << 20;
/// A block of which at most this part is untouched counts as touched all over.
const NEARLY_ALL: usize = 16;
/// Shortest time, ns, between two looks at all blocks that are not known to be touched: 16 looks of a few us each are
/// then at most 1 % of a CPU.
const LOOK_INTERVAL: u64 = 10_000_000;

/// How idle memory goes when other memory becomes resident in its place. No huge page is split for that: the one in least use
/// is the one that pages are being taken from.
const ROOM: Want = Want { cause: Cause::Idle, split: Backing::Small };

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
        let left = fresh - (self.unmap_while(Cause::Idle, |blocks| blocks.drop_above(keep)) / PAGE).min(fresh);
        let huge = self.platform.huge_on_touch();
        self.release_in_zones(left, |zone| zone.surplus(huge));
    }

    /// Releases up to `pages` idle pages of all zones, of each at most what `spare` says. A zone of which a batch is in
    /// flight is left alone: an allocation does not wait for the balancer, which releases more than this would.
    fn release_in_zones(&self, pages: usize, spare: impl Fn(&FreeAreas) -> usize) {
        let mut left = pages;
        self.each_zone(|site, _| {
            let zone = site.zone.lock(&self.platform);
            let (surplus, idle) = (spare(&zone).min(left).min(zone.idle), zone.idle);
            drop(zone);
            if surplus == 0 || site.in_flight.try_lock(&self.platform).is_none() {
                return 0;
            }
            let keep = idle - surplus;
            let bytes = site.report_whole(ROOM, keep) + site.report_runs(ROOM, keep);
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
            let again = self.mapped.lock(&self.platform).recent.taken(len / PAGE);
            self.note_again(again);
            // At a pageblock where huge pages are to come; else at any page, which is harder to guess.
            let huge = self.platform.huge_on_touch() || self.mapped.lock(&self.platform).density.pays();
            let align = if huge { align.max(PAGEBLOCK) } else { align };
            let map = || self.platform.map(len, align);
            let addr = map().or_else(|| {
                self.reclaim_for_allocation();
                map()
            })?;
            Some((Kept { block: Block { run: Run { addr, len }, ..Block::NONE }, resident: 0 }, true))
        };
        let Some((Kept { mut block, resident }, zero)) = kept.map(|kept| (kept, false)).or_else(fresh) else {
            self.mapped.lock(&self.platform).unreserve();
            return (null_mut(), false);
        };
        self.look_at_newest();
        let wants_huge = self.mapped.lock(&self.platform).density.wants_huge();
        if wants_huge && !block.huge && self.platform.tunables().huge_blocks.get() != 0 {
            self.platform.advise_huge(block.run);
            block.huge = true;
        }
        block.is_touched = resident == block.run.len;
        self.mapped.lock(&self.platform).insert(block, block.run.len - resident);
        // It cannot use what is idle in the zones.
        self.release_in_zones((block.run.len - resident) / PAGE, |zone| zone.idle);
        // Before the program touches it. Kept blocks that make room for others are no report.
        self.unmap_those(Cause::Idle, Blocks::drop_over);
        stats::add(&self.platform.stats().mapped_bytes, block.run.len as u64);
        (block.run.addr as *mut u8, zero)
    }

    /// Learns from the block handed out before this one, if it is still in use: a program that fills its blocks as it
    /// gets them has filled that one.
    fn look_at_newest(&self) {
        let newest = self.mapped.lock(&self.platform).untouched.see_newest();
        // It may be freed meanwhile, and its addresses be another's: then one wrong thing is learnt.
        if let Some(block) = newest
            && let Some(look) = self.look_in_use(block)
            && !block.huge
        {
            self.mapped.lock(&self.platform).density.observe_in_use(look.filled);
        }
    }

    /// Looks at a block in use, and notes what of it is untouched.
    fn look_in_use(&self, block: Block) -> Option<Look> {
        let found = look(&self.platform, block.run);
        let untouched = untouched(block.run.len, found);
        let mut blocks = self.mapped.lock(&self.platform);
        blocks.untouched.set(block, untouched);
        blocks.note(0);
        found
    }

    /// Looks at the blocks in use that may have been touched since the last look: at the youngest, which is most likely
    /// being touched now, and from time to time at all.
    fn look_at_untouched(&self) {
        let now = self.platform.now();
        let mut blocks = self.mapped.lock(&self.platform);
        let (known, count) = blocks.untouched.blocks();
        let all = now.saturating_sub(blocks.untouched.looked_at) >= LOOK_INTERVAL;
        if all {
            blocks.untouched.looked_at = now;
        }
        drop(blocks);
        for &block in &known[..if all { count } else { count.min(1) }] {
            self.look_in_use(block);
        }
    }

    /// Makes a large block that was used before read as zero, as far as it is long.
    pub(crate) fn wipe(&self, block: *mut u8) {
        // SAFETY: the caller has just allocated it.
        let len = unsafe { self.usable_size(block) };
        let run = Run { addr: block as usize, len };
        // Writing zeros makes all of a block resident, of which the program may never touch more than a few pages (a
        // sparse table). Only a short block, or one that has memory behind nearly all of it, is written to; any other is
        // released, so that it is as a fresh one.
        let untouched = self.mapped.lock(&self.platform).untouched.of(run.addr);
        let write = len <= MAX_RUN * PAGE || len <= WIPE_MAX && untouched <= len / NEARLY_ALL;
        let zero = || {
            let released = self.platform.release(&[run], false);
            released.runs == 1 && released.contents == Contents::Zero
        };
        if write || !zero() {
            // SAFETY: a block of that length, the caller's.
            unsafe { core::ptr::write_bytes(block, 0, len) };
            return;
        }
        let mut blocks = self.mapped.lock(&self.platform);
        blocks.released(run.addr);
    }

    /// A block freed a while ago, grown or cut to `len`.
    fn reuse_block(&self, len: usize) -> Option<Kept> {
        let mut kept = self.mapped.lock(&self.platform).reuse(len)?;
        if kept.block.run.len > len + len / 8 {
            kept = self.cut_kept(kept, len);
        }
        let Kept { block, resident } = kept;
        let run = block.run;
        let len = run.len.max(len);
        let renewed = self.platform.renew(run, len);
        if renewed.is_none() {
            self.platform.unmap(run);
        }
        renewed.map(|addr| Kept { block: moved(block, Run { addr, len }), resident })
    }

    /// The first `len` bytes of a kept block; the rest is kept on, as far as memory is behind it.
    fn cut_kept(&self, Kept { mut block, resident }: Kept, len: usize) -> Kept {
        let rest = Run { addr: block.run.addr + len, len: block.run.len - len };
        block.run.len = len;
        // A program touches a block from its beginning.
        let first = resident.min(len);
        let rest = Kept { block: Block { run: rest, is_rest: true, ..block }, resident: resident - first };
        if rest.resident > 0 {
            self.keep_or_unmap(rest)
        } else {
            self.platform.unmap(rest.block.run)
        }
        Kept { block, resident: first }
    }

    /// Takes up to `more` bytes that were cut off `block`, and are kept right behind it, into the block. Returns how many,
    /// and how many of them are resident.
    fn absorb(&self, block: &Block, more: usize) -> (usize, usize) {
        let Some(mut kept) = self.mapped.lock(&self.platform).take_rest(block) else { return (0, 0) };
        if kept.block.run.len > more {
            kept = self.cut_kept(kept, more);
        }
        let run = kept.block.run;
        if self.platform.renew(run, run.len).is_none() {
            self.platform.unmap(run);
            return (0, 0);
        }
        (run.len, kept.resident)
    }

    /// Frees a block mapped on its own: it is kept for a while, if that costs no peak.
    pub(crate) fn free_mapped(&self, addr: usize) {
        let Some((block, _)) = self.mapped.lock(&self.platform).remove(addr) else {
            return self.platform.misuse(Misuse::DoubleFree, addr, 0);
        };
        self.platform.stats().mapped_bytes.fetch_sub(block.run.len as u64, Relaxed);
        // Of one that was resident before nothing can be learnt.
        let found = if block.is_touched { None } else { look(&self.platform, block.run) };
        let resident = block.run.len - untouched(block.run.len, found);
        let mut blocks = self.mapped.lock(&self.platform);
        if let Some(look) = found.filter(|_| !block.huge) {
            blocks.density.observe(look.filled);
        }
        blocks.note(resident);
        let doubtful = blocks.untouched.bytes > 0 && !blocks.has_room(resident);
        drop(blocks);
        if doubtful {
            self.look_at_untouched();
            self.mapped.lock(&self.platform).note(resident);
        }
        self.keep_or_unmap(Kept { block, resident });
        self.note_idle(block.run.len);
    }

    fn keep_or_unmap(&self, kept: Kept) {
        let gone = self.mapped.lock(&self.platform).keep(kept);
        if let Some(run) = gone {
            self.platform.unmap(run);
        }
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
            let Some(table) = self.platform.map_metadata(table_bytes(capacity), PAGE) else { return false };
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
        let Some((block, untouched)) = self.mapped.lock(&self.platform).lift(addr) else {
            self.platform.misuse(Misuse::DoubleFree, addr, 0);
            return null_mut();
        };
        let (more, resident) = if new_len > len { self.absorb(&block, new_len - len) } else { (0, 0) };
        let before = Run { addr, len: len + more };
        let is_enough = before.len == new_len;
        let remapped = if is_enough { Some(addr) } else { self.platform.remap(before, new_len) };
        let now = remapped.map_or(before, |addr| Run { addr, len: new_len });
        let untouched = (untouched + now.len).saturating_sub(len + resident);
        let block = Block { is_touched: block.is_touched && untouched == 0, ..moved(block, now) };
        self.mapped.lock(&self.platform).insert(block, untouched);
        self.unmap_those(Cause::Idle, Blocks::drop_over);
        let stat = &self.platform.stats().mapped_bytes;
        stat.fetch_add((now.len as u64).wrapping_sub(len as u64), Relaxed);
        match remapped {
            Some(addr) => addr as *mut u8,
            // Programs do not expect that less may be refused: the block stays as long as it is.
            None if new_len < len => addr as *mut u8,
            None => null_mut(),
        }
    }
}

/// The block at another place or of another length.
fn moved(block: Block, run: Run) -> Block {
    Block { run, is_rest: block.is_rest && run.addr == block.run.addr, ..block }
}

/// Of a block of `len` bytes, those untouched by what a look found; none where the platform cannot say.
fn untouched(len: usize, found: Option<Look>) -> usize {
    let untouched = found.map_or(0, |look| len.saturating_sub(look.resident));
    if untouched <= len / NEARLY_ALL { 0 } else { untouched }
}

pub(crate) fn mark_run(space: &Space, run: PageRun, pages: usize) -> *mut u8 {
    // SAFETY: the run is the caller's, so is its head's descriptor.
    unsafe { *space.window.desc(run.page) = pages as u32 };
    space.window.set_class(run.page, 1, LARGE);
    space.window.addr_of(run.page) as *mut u8
}

/// Takes back a run; whether it is the former copy of a buffer that grows.
pub(crate) fn give_run<P: Platform>(heap: &Heap<P>, space: &Space, page: u32, pages: usize) -> bool {
    give_to_zone(heap, space, page, pages, |zone| {
        zone.give(&space.window, page, pages, 0);
        zone.growth.give(pages)
    })
}

pub(crate) fn give_pages_in<P: Platform>(heap: &Heap<P>, space: &Space, page: u32, pages: usize, reported: u32) {
    give_to_zone(heap, space, page, pages, |zone| zone.give(&space.window, page, pages, reported));
}

#[inline]
fn give_to_zone<P: Platform, T>(
    heap: &Heap<P>,
    space: &Space,
    page: u32,
    pages: usize,
    give: impl FnOnce(&mut FreeAreas) -> T,
) -> T {
    // A run of two pageblocks may span nodes' zones no more than a slab does: both halves came from one zone.
    // SAFETY: a pageblock is named by a page of its own; its node never changes.
    let node = unsafe { (*space.window.block(page / PAGEBLOCK_PAGES as u32)).node } as usize;
    let given = give(&mut space.zones[node].lock(&heap.platform));
    heap.platform.stats().used_bytes.fetch_sub((pages * PAGE) as u64, Relaxed);
    heap.note_idle(pages * PAGE);
    given
}
