//! Where an allocation goes: what is resident before what is not, the fullest pageblock first, slabs and runs apart.
//!
//! In this order, the first that has room:
//!
//! 1. Idle pages (free, and memory is behind them) of a pageblock in use for the same purpose, the fullest first.
//! 2. Idle pages of whole free pageblocks, those first that the system refused to take.
//! 3. For a run: idle pages of a slab's pageblocks. The run goes again, and costs nothing meanwhile.
//! 4. Pages without memory of pageblocks in use for the same purpose.
//! 5. For a slab: idle pages of runs' pageblocks. They come later, as what is put there stays in the way of runs.
//! 6. A whole free pageblock without memory.
//! 7. Anything else that is free.
//!
//! Before all that, a run goes to the hole that the last of its length left. Such a hole mostly lies over the end of a
//! pageblock, or over the middle of one. So it is on no list as what it is.
//!
//! A run that begins in a whole free pageblock begins in the free pages before it instead, if those are runs' too. So
//! runs lie densely, and whatever is freed in a row serves runs of any length. A power of two needs none of that: it
//! fills pageblocks without a rest.

use super::lists::{By, WHOLE_BACKED, WHOLE_BARE, WHOLE_REFUSED, WHOLE_REPORTED, levels};
use super::{FreeAreas, HOLES, Purpose};
use crate::base::units::{BlockNo, Order, PageNo, Pages, REPORT_ORDER, Span, order_of};
use crate::pages::page_set::PageSet;
use crate::pages::pageblock::State;
use crate::pages::window::Window;

/// Pageblocks looked at for free pages in a row before one that is sure to have them is taken.
const LOOSE_TRIES: usize = 8;
/// Whole free pageblocks of each list looked at for enough neighbours before the zone grows instead.
const WIDE_TRIES: usize = 64;

/// Request for `pages` pages aligned to `align`, which a free block of `order` is sure to hold.
#[derive(Clone, Copy)]
struct Ask {
    pages: Pages,
    align: Order,
    order: u32,
}

impl Ask {
    /// Shorter free blocks in a row may do as well.
    fn is_loose(&self) -> bool {
        self.align == Order::PAGE && self.order > 0 && self.pages < Pages::BLOCK
    }
}

impl FreeAreas {
    /// Whether there is a place for such a request.
    pub(crate) fn has(&self, window: &Window, pages: Pages, align: Order, purpose: Purpose) -> bool {
        self.place(window, pages, align, purpose).is_some()
    }

    /// The first page for `pages` pages, aligned to `align`.
    pub(super) fn place(&self, window: &Window, pages: Pages, align: Order, purpose: Purpose) -> Option<PageNo> {
        let ask = Ask { pages, align, order: align.0.max(order_of(pages)) };
        let hole = self.holes[pages.0 % HOLES];
        if purpose == Purpose::Run && align == Order::PAGE && hole.len == pages && self.is_idle(window, hole) {
            return Some(hole.first);
        }
        if ask.order > REPORT_ORDER {
            return self.wide(window, ask);
        }
        let own = |by| self.inside(window, by, levels(purpose, pages), ask);
        let other = |by| {
            let purpose = if purpose == Purpose::Run { Purpose::Slab } else { Purpose::Run };
            self.inside(window, by, levels(purpose, pages), ask)
        };
        let is_run = purpose == Purpose::Run;
        own(By::Idle)
            .or_else(|| self.whole_idle_pages(window, ask, is_run))
            .or_else(|| is_run.then(|| other(By::Idle)).flatten())
            .or_else(|| own(By::Free))
            .or_else(|| (!is_run).then(|| other(By::Idle)).flatten())
            .or_else(|| self.whole(window, ask, is_run))
            .or_else(|| other(By::Free))
    }

    /// Whether all pages of `hole`, which a run left, are idle still.
    fn is_idle(&self, window: &Window, hole: Span) -> bool {
        hole.pieces().all(|(block, pages)| {
            let pageblock = self.blocks.at(window, block);
            pageblock.free.has_range(pages.clone()) && pageblock.idle_in(pages.clone()) == Pages(pages.len())
        })
    }

    /// Room inside a pageblock of one of `levels`. A block of the order is sure to hold what is asked for. Where no
    /// alignment is asked for, shorter blocks in a row may do as well. A few pageblocks with such are tried first, as
    /// they are fuller.
    fn inside(&self, window: &Window, by: By, levels: impl Iterator<Item = usize>, ask: Ask) -> Option<PageNo> {
        let (lists, mut tries) = (&self.lists[by as usize], LOOSE_TRIES);
        for level in levels {
            if ask.is_loose() && lists.some[level] >> (ask.order - 1) & 1 == 1 {
                let mut block = lists.heads[level][ask.order as usize - 1];
                while block != BlockNo::NONE && tries > 0 {
                    if let Some(page) = self.inside_block(window, by, block, ask) {
                        return Some(page);
                    }
                    block = self.blocks.at(window, block).links[by as usize].next;
                    tries -= 1;
                }
            }
            if let Some(block) = lists.find(core::iter::once(level), ask.order) {
                return self.inside_block(window, by, block, ask);
            }
        }
        None
    }

    fn inside_block(&self, window: &Window, by: By, block: BlockNo, ask: Ask) -> Option<PageNo> {
        let pages = self.pages_of(window, block, by);
        let first = if ask.is_loose() { pages.best_run(ask.pages) } else { pages.find_block(ask.order) };
        Some(block.page(first?))
    }

    /// Idle pages of a whole free pageblock.
    fn whole_idle_pages(&self, window: &Window, ask: Ask, is_run: bool) -> Option<PageNo> {
        let page = self.inside(window, By::Idle, [WHOLE_REFUSED, WHOLE_BACKED].into_iter(), ask)?;
        Some(if is_run { self.earlier(window, page, ask, By::Idle) } else { page })
    }

    /// A whole free pageblock, if possible one with memory behind a part of it.
    fn whole(&self, window: &Window, ask: Ask, is_run: bool) -> Option<PageNo> {
        let levels = [WHOLE_REFUSED, WHOLE_BACKED, WHOLE_REPORTED, WHOLE_BARE].into_iter();
        let page = self.lists[By::Free as usize].find(levels, REPORT_ORDER)?.first();
        Some(if is_run { self.earlier(window, page, ask, By::Free) } else { page })
    }

    /// Beginning of a run for which there is room at `page`, the first of a whole free pageblock. The run begins in the
    /// free (or idle) pages before it, if those are runs'.
    fn earlier(&self, window: &Window, page: PageNo, ask: Ask, by: By) -> PageNo {
        if page.in_block() != 0 || ask.align > Order::PAGE || ask.pages.0.is_power_of_two() {
            return page;
        }
        page - self.room_before(window, page.block(), by).min(ask.pages - Pages(1))
    }

    fn pages_of(&self, window: &Window, block: BlockNo, by: By) -> PageSet {
        pages_of(self.blocks.at(window, block), by)
    }

    /// Pages of runs' pageblocks right before pageblock `block`: 0 to 511.
    fn room_before(&self, window: &Window, block: BlockNo, by: By) -> Pages {
        let before = block.before().and_then(|before| self.blocks.get(window, before));
        let runs = before.filter(|before| !before.slabs && !before.free.is_full());
        runs.map_or(Pages::ZERO, |before| pages_of(before, by).len_at_end())
    }

    /// Pages right behind pageblock `block` that runs may have: 0 to 512.
    fn room_behind(&self, window: &Window, block: BlockNo, by: By) -> Pages {
        if block.next() >= window.top().block() {
            return Pages::ZERO;
        }
        let runs = self.blocks.get(window, block.next()).filter(|behind| !behind.slabs || behind.free.is_full());
        runs.map_or(Pages::ZERO, |behind| pages_of(behind, by).len_at_start())
    }

    /// Room for more than a pageblock: a whole free one with enough pages around it, all of them idle if possible.
    fn wide(&self, window: &Window, ask: Ask) -> Option<PageNo> {
        let all = [WHOLE_REFUSED, WHOLE_BACKED, WHOLE_REPORTED, WHOLE_BARE];
        self.wide_of(window, ask, By::Idle, &all[..2]).or_else(|| self.wide_of(window, ask, By::Free, &all))
    }

    fn wide_of(&self, window: &Window, ask: Ask, by: By, levels: &[usize]) -> Option<PageNo> {
        let lists = &self.lists[by as usize];
        levels.iter().find_map(|&level| {
            let mut block = lists.heads[level][REPORT_ORDER as usize];
            for _ in 0..WIDE_TRIES {
                if block == BlockNo::NONE {
                    break;
                }
                if let Some(page) = self.wide_around(window, block, ask, by) {
                    return Some(page);
                }
                block = self.blocks.at(window, block).links[by as usize].next;
            }
            None
        })
    }

    /// Where a run that contains the first pages of `block`, whole and free, or idle, may begin.
    fn wide_around(&self, window: &Window, block: BlockNo, ask: Ask, by: By) -> Option<PageNo> {
        let first = block.first();
        let is_loose = ask.align == Order::PAGE && !ask.pages.0.is_power_of_two();
        let before = if is_loose { self.room_before(window, block, by) } else { Pages::ZERO };
        // Only an alignment to 4 MiB is more than a pageblock has by itself.
        let fits = |block: BlockNo| ask.align.0 <= REPORT_ORDER || block.0.is_multiple_of(2);
        if fits(block) && before + Pages::BLOCK + self.room_behind(window, block, by) >= ask.pages {
            return Some(first - before);
        }
        let is_whole = |block| self.blocks.get(window, block).is_some_and(|before| pages_of(before, by).is_full());
        let before = block.before()?;
        (fits(before) && is_whole(before)).then(|| before.first())
    }
}

/// The free or idle pages of a pageblock.
fn pages_of(pageblock: &State, by: By) -> PageSet {
    if by == By::Idle { pageblock.idle() } else { pageblock.free }
}
