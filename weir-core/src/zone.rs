//! A zone: pageblocks of one node, on lists by how full they are and by the largest block they can still give.
//!
//! An allocation goes to the fullest pageblock that has a free block of its order, so that sparse pageblocks empty
//! and can be reported whole. Within a pageblock, and among whole free ones, backed pages go before reported ones.
//! A pageblock with free backed pages is on the *hint list* (page hinting's bitmap, kept as a list so that finding the
//! next one to report costs the same whatever the heap's size), the longest unchanged first.

mod audit;
mod bare;
mod offline;
mod sparse;

use crate::buddy::{Backing, Look, PageSet, Pageblock};
use crate::lock::Lock;
use crate::page::{NONE, PAGEBLOCK_PAGES, REPORT_ORDER, Window, order_of};
use crate::platform::Contents;
use crate::refault::Again;
use crate::working_set::Peak;

/// Steps of fullness told apart among pageblocks that are neither full nor empty.
const FILLS: usize = 8;
/// Orders a partly free pageblock can give: 0 to 8.
const ORDERS: usize = REPORT_ORDER as usize;
const PARTIAL_LISTS: usize = FILLS * ORDERS;
/// Whole free pageblocks: with memory behind them, with memory that nobody takes back, without; and with none behind what
/// describes them either (see `bare`).
const WHOLE_BACKED: usize = PARTIAL_LISTS;
const WHOLE_REFUSED: usize = PARTIAL_LISTS + 1;
const WHOLE_REPORTED: usize = PARTIAL_LISTS + 2;
const WHOLE_BARE: usize = PARTIAL_LISTS + 3;
const LISTS: usize = PARTIAL_LISTS + 4;
/// The hint list, beside those of each [`Backing`], of pageblocks whose release was refused.
const HINT_REFUSED: usize = 3;
/// Pageblocks looked at for free blocks in a row before one with a whole block of the order is taken.
const LOOSE_TRIES: usize = 8;
/// Whole free pageblocks looked at for two neighbours before the zone grows instead.
const PAIR_TRIES: usize = 64;

/// Pages handed out by a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// First page.
    pub page: u32,
    /// All its pages read as zero: none was backed.
    pub zero: bool,
    /// Those of its pages that were reported lately.
    pub again: Again,
}

/// How a report went.
#[derive(Clone, Copy, Debug)]
pub struct Gone {
    /// What the pages hold now.
    pub contents: Contents,
    /// When, as a [`crate::refault::stamp`].
    pub at: u32,
    /// For how many stamps it counts as lately.
    pub horizon: u32,
    /// A calm window reported them.
    pub calm: bool,
}

/// A zone behind its lock.
pub type Zone = Lock<FreeAreas, 4>;

/// The lists and counts of a zone.
pub struct FreeAreas {
    heads: [u32; LISTS],
    /// Bit `order` of `partial[fill]`: that list is not empty.
    partial: [u16; FILLS],
    /// Head and tail of the hint lists, one for each [`Backing`] and one for what was refused.
    hints: [[u32; 2]; 4],
    /// The node that this zone belongs to.
    pub node: u8,
    /// Pages mapped into the zone.
    pub pages: usize,
    /// Pages handed out (a batch that is being reported counts as free).
    pub used: usize,
    /// Free pages that are backed.
    pub idle: usize,
    /// Peak of `used` over the last window: what the working set may want again.
    pub peak: Peak,
    /// Some of its pageblocks may be [`Look::Torn`].
    torn: bool,
}

impl FreeAreas {
    /// An empty zone of node `node`.
    pub const fn new(node: u8) -> Self {
        Self {
            heads: [NONE; LISTS],
            partial: [0; FILLS],
            hints: [[NONE; 2]; 4],
            node,
            pages: 0,
            used: 0,
            idle: 0,
            peak: Peak::new(),
            torn: false,
        }
    }

    #[allow(clippy::mut_from_ref, reason = "the zone lock, which `self` proves, guards its pageblocks")]
    fn block<'a>(&self, window: &'a Window, block: u32) -> &'a mut Pageblock {
        // SAFETY: only pageblocks of this zone are named here; they are mapped, and guarded by the zone lock.
        unsafe { &mut *window.block(block) }
    }

    /// Takes `pages` pages (at most those of order 10), aligned to `align` (an order), from free areas. `None`: grow
    /// first.
    pub fn take(&mut self, window: &Window, pages: usize, align: u32, huge_on_touch: bool) -> Option<PageRun> {
        let order = align.max(order_of(pages));
        let (block, first) = if let Some(found) = self.partial_run(window, pages, align, order) {
            found
        } else if order <= REPORT_ORDER {
            (self.whole(|_| true, window)?, 0)
        } else {
            (self.pair(window, align > REPORT_ORDER)?, 0)
        };
        let page = block * PAGEBLOCK_PAGES as u32 + first as u32;
        let (zero, again) = self.take_run(window, page, pages, huge_on_touch);
        Some(PageRun { page, zero, again })
    }

    /// A run inside the fullest partly free pageblock that has one. A block of `order` is sure to hold it; where no
    /// alignment is asked for, shorter ones in a row may do as well, and a few pageblocks with such are tried.
    fn partial_run(&self, window: &Window, pages: usize, align: u32, order: u32) -> Option<(u32, usize)> {
        let loose = align == 0 && order > 0;
        for fill in (0..FILLS).rev() {
            if loose && order <= REPORT_ORDER && self.partial[fill] >> (order - 1) & 1 == 1 {
                let mut block = self.heads[fill * ORDERS + order as usize - 1];
                for _ in 0..LOOSE_TRIES {
                    if block == NONE {
                        break;
                    }
                    let pageblock = self.block(window, block);
                    if let Some(first) = pageblock.find_run(pages) {
                        return Some((block, first));
                    }
                    block = pageblock.next;
                }
            }
            if order < REPORT_ORDER && self.partial[fill] >> order != 0 {
                let order = order + (self.partial[fill] >> order).trailing_zeros();
                let block = self.heads[fill * ORDERS + order as usize];
                let pageblock = self.block(window, block);
                let first = if loose { pageblock.find_run(pages) } else { pageblock.find(align.max(order_of(pages))) };
                return Some((block, first?));
            }
        }
        None
    }

    /// Takes `pages` free pages from `page`; returns whether all are zero, and which were reported lately.
    fn take_run(&mut self, window: &Window, page: u32, pages: usize, huge_on_touch: bool) -> (bool, Again) {
        let (mut zero, mut again) = (true, Again::default());
        for (block, first, n) in pieces(page, pages) {
            self.unlink(window, block);
            let pageblock = self.block(window, block);
            let idle = pageblock.idle().len();
            let mut touched = n;
            if pageblock.backed.is_empty() {
                pageblock.huge = huge_on_touch;
                // A huge page comes whole.
                touched = if huge_on_touch { PAGEBLOCK_PAGES } else { n };
            }
            let backed = pageblock.take_at(first, n);
            zero &= backed == 0 && !pageblock.dirty;
            again = again.and(pageblock.recent.taken(touched - backed));
            (pageblock.refused, pageblock.bare) = (false, false);
            pageblock.forget_look();
            self.idle = self.idle + pageblock.idle().len() - idle;
            self.link(window, block);
        }
        self.used += pages;
        self.peak.note(self.used);
        (zero, again)
    }

    /// The first whole free pageblock that `fits`: what nobody takes back first, then backed before reported.
    fn whole(&self, fits: impl Fn(u32) -> bool, window: &Window) -> Option<u32> {
        [WHOLE_REFUSED, WHOLE_BACKED, WHOLE_REPORTED, WHOLE_BARE].into_iter().find_map(|list| {
            let mut block = self.heads[list];
            for _ in 0..PAIR_TRIES {
                if block == NONE || fits(block) {
                    break;
                }
                block = self.block(window, block).next;
            }
            (block != NONE && fits(block)).then_some(block)
        })
    }

    /// The first of two neighbouring whole free pageblocks, an even one if `aligned`.
    fn pair(&self, window: &Window, aligned: bool) -> Option<u32> {
        let end = window.top() / PAGEBLOCK_PAGES as u32;
        let free = |b: u32| {
            let block = self.block(window, b);
            block.node == self.node && block.list as usize > WHOLE_BACKED
        };
        let after = |b: u32| b + 1 < end && free(b + 1) && !(aligned && b % 2 == 1);
        let before = |b: u32| b > 0 && free(b - 1) && !(aligned && b.is_multiple_of(2));
        let block = self.whole(|b| after(b) || before(b), window)?;
        Some(if after(block) { block } else { block - 1 })
    }

    /// Takes back `pages` pages from `page`. Those in `unbacked` (bit i: page `page + i`) are known to be reported.
    pub fn give(&mut self, window: &Window, page: u32, pages: usize, unbacked: u32) {
        self.used -= pages;
        for (block, first, n) in pieces(page, pages) {
            self.unlink(window, block);
            let pageblock = self.block(window, block);
            let idle = pageblock.idle().len();
            pageblock.free.insert(first, n);
            pageblock.forget_look();
            for i in (0..n.min(32)).filter(|i| unbacked >> i & 1 == 1) {
                pageblock.backed.remove(first + i, 1);
            }
            self.idle = self.idle + pageblock.idle().len() - idle;
            self.link(window, block);
        }
    }

    /// Adds `count` fresh pageblocks from `first`.
    pub fn add(&mut self, window: &Window, first: u32, count: usize) {
        // Backwards, so that the list hands out ascending addresses.
        for block in (first..first + count as u32).rev() {
            // The window's first one may lack pages.
            self.pages += self.block(window, block).free.len();
            self.link(window, block);
        }
    }

    /// Takes the `pages` pages from `page` if they are free and in the pageblock of the page before them; which of them
    /// were reported lately.
    pub fn extend(&mut self, window: &Window, page: u32, pages: usize) -> Option<Again> {
        let (block, first) = (page / PAGEBLOCK_PAGES as u32, page as usize % PAGEBLOCK_PAGES);
        let inside = first != 0 && first + pages <= PAGEBLOCK_PAGES;
        let pageblock = self.block(window, block);
        if !inside || pageblock.offline || pageblock.free.count_range(first, pages) < pages {
            return None;
        }
        Some(self.take_run(window, page, pages, false).1)
    }

    // ---- reporting ---------------------------------------------------------------------------------------------

    /// Isolates a pageblock's free backed pages for a report: they are not free until [`FreeAreas::put_back`].
    pub fn isolate(&mut self, window: &Window, block: u32) -> PageSet {
        self.unlink(window, block);
        let pageblock = self.block(window, block);
        let idle = pageblock.idle();
        pageblock.free = pageblock.free.minus(&idle);
        self.link(window, block);
        idle
    }

    /// Returns isolated `pages` to the free areas, of which those in `gone` went below. Returns whether a huge page was
    /// behind them.
    pub fn put_back(&mut self, window: &Window, block: u32, pages: &PageSet, gone: &PageSet, how: Gone) -> bool {
        self.unlink(window, block);
        let pageblock = self.block(window, block);
        let huge = pageblock.huge;
        let kept = pages.minus(gone);
        pageblock.free = pageblock.free.or(pages);
        if !gone.is_empty() {
            if huge {
                // What stays of it is backed by small pages now, touched or not.
                pageblock.backed = pageblock.backed.or(&pageblock.free);
                pageblock.huge = false;
                let whole = gone.len() == PAGEBLOCK_PAGES;
                pageblock.look = if whole { Look::None } else { Look::Torn };
                self.torn |= !whole;
            }
            pageblock.backed = pageblock.backed.minus(gone);
            pageblock.recent.reported(gone.len(), how.at, how.calm, how.horizon);
            self.idle -= gone.len();
            let undefined = how.contents == Contents::Undefined;
            pageblock.dirty = undefined || pageblock.dirty && gone.len() < PAGEBLOCK_PAGES;
        }
        // Isolated pages are backed, whatever became of the pageblock's huge page meanwhile (a report of slabs in it may
        // have split it).
        pageblock.backed = pageblock.backed.or(&kept);
        pageblock.refused |= !kept.is_empty();
        self.link(window, block);
        huge
    }

    /// Gives up to `count` pageblocks whose release was refused another try.
    pub fn forgive(&mut self, window: &Window, count: usize) {
        for _ in 0..count {
            let block = self.hints[HINT_REFUSED][0];
            if block == NONE {
                break;
            }
            self.unlink(window, block);
            self.block(window, block).refused = false;
            self.link(window, block);
        }
    }

    /// Notes that pages in use by a slab were reported out of `block`: its huge page, if there was one, is split, and
    /// what was free in it is backed by small pages now. Returns whether there was one.
    pub fn split(&mut self, window: &Window, block: u32, contents: Contents) -> bool {
        self.block(window, block).dirty |= contents == Contents::Undefined;
        if !self.block(window, block).huge {
            return false;
        }
        self.unlink(window, block);
        let pageblock = self.block(window, block);
        pageblock.backed = pageblock.backed.or(&pageblock.free);
        pageblock.huge = false;
        pageblock.look = Look::Torn;
        self.torn = true;
        self.link(window, block);
        true
    }

    /// The whole free backed pageblock to report next.
    pub fn whole_idle(&self) -> Option<u32> {
        (self.heads[WHOLE_BACKED] != NONE).then(|| self.heads[WHOLE_BACKED])
    }

    /// Whether `block` has free backed pages that may be reported.
    pub fn has_idle(&self, window: &Window, block: u32) -> bool {
        let block = self.block(window, block);
        block.hint != 0 && !block.refused
    }

    /// The pageblock to report next: that with free backed pages which has not changed for the longest, among those
    /// with this backing.
    pub fn next_hint(&self, backing: Backing) -> Option<u32> {
        let block = self.hints[backing as usize][0];
        (block != NONE).then_some(block)
    }

    // ---- lists -------------------------------------------------------------------------------------------------

    fn list_of(block: &Pageblock) -> Option<usize> {
        if block.offline {
            return None;
        }
        let order = block.free.max_order()?;
        if order == REPORT_ORDER {
            return Some(match (block.backed.is_empty(), block.bare, block.refused) {
                (true, true, _) => WHOLE_BARE,
                (true, false, _) => WHOLE_REPORTED,
                (false, _, true) => WHOLE_REFUSED,
                (false, _, false) => WHOLE_BACKED,
            });
        }
        let used = PAGEBLOCK_PAGES - block.free.len();
        Some((used * FILLS / PAGEBLOCK_PAGES) * ORDERS + order as usize)
    }

    /// Puts `block` on the list that its free pages put it on, and on the hint list if any of them is backed.
    fn link(&mut self, window: &Window, block: u32) {
        let pageblock = self.block(window, block);
        if let Some(list) = Self::list_of(pageblock) {
            self.push(window, list, block);
        }
        if !pageblock.idle().is_empty() {
            self.hint(window, block);
        }
    }

    /// Takes `block` off its lists.
    fn unlink(&mut self, window: &Window, block: u32) {
        if self.block(window, block).list != 0 {
            self.remove(window, block);
        }
        if self.block(window, block).hint != 0 {
            self.unhint(window, block);
        }
    }

    fn hint_of(block: &Pageblock) -> usize {
        if block.refused { HINT_REFUSED } else { block.backing() as usize }
    }

    fn hint(&mut self, window: &Window, block: u32) {
        let pageblock = self.block(window, block);
        pageblock.hint = Self::hint_of(pageblock) as u8 + 1;
        let ends = &mut self.hints[pageblock.hint as usize - 1];
        let tail = core::mem::replace(&mut ends[1], block);
        if tail == NONE {
            ends[0] = block;
        } else {
            self.block(window, tail).hint_next = block;
        }
        (pageblock.hint_next, pageblock.hint_prev) = (NONE, tail);
    }

    fn unhint(&mut self, window: &Window, block: u32) {
        let pageblock = self.block(window, block);
        let (next, prev) = (pageblock.hint_next, pageblock.hint_prev);
        let list = core::mem::take(&mut pageblock.hint) as usize - 1;
        if next != NONE {
            self.block(window, next).hint_prev = prev;
        } else {
            self.hints[list][1] = prev;
        }
        if prev != NONE {
            self.block(window, prev).hint_next = next;
        } else {
            self.hints[list][0] = next;
        }
    }

    fn push(&mut self, window: &Window, list: usize, block: u32) {
        let head = self.heads[list];
        let pageblock = self.block(window, block);
        (pageblock.next, pageblock.prev, pageblock.list) = (head, NONE, list as u8 + 1);
        if head != NONE {
            self.block(window, head).prev = block;
        }
        self.heads[list] = block;
        if list < PARTIAL_LISTS {
            self.partial[list / ORDERS] |= 1 << (list % ORDERS);
        }
    }

    fn remove(&mut self, window: &Window, block: u32) {
        let pageblock = self.block(window, block);
        let list = pageblock.list as usize - 1;
        let (next, prev) = (pageblock.next, pageblock.prev);
        pageblock.list = 0;
        if next != NONE {
            self.block(window, next).prev = prev;
        }
        if prev != NONE {
            self.block(window, prev).next = next;
        } else {
            self.heads[list] = next;
            if next == NONE && list < PARTIAL_LISTS {
                self.partial[list / ORDERS] &= !(1 << (list % ORDERS));
            }
        }
    }
}

/// Splits a run of pages at pageblock boundaries: pageblock, first page in it, pages.
fn pieces(page: u32, pages: usize) -> impl Iterator<Item = (u32, usize, usize)> {
    let (mut at, end) = (page as usize, page as usize + pages);
    core::iter::from_fn(move || {
        (at < end).then(|| {
            let (block, first) = (at / PAGEBLOCK_PAGES, at % PAGEBLOCK_PAGES);
            let n = (end - at).min(PAGEBLOCK_PAGES - first);
            at += n;
            (block as u32, first, n)
        })
    })
}
