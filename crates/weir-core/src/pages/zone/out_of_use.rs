//! Pageblocks out of use for a time: isolated for what describes them, closed, or unmapped.

use core::ops::Range;

use super::lists::{By, ORDERS, WHOLE_BACKED, WHOLE_BARE, WHOLE_REFUSED, WHOLE_REPORTED};
use super::{Closed, FreeAreas};
use crate::base::units::{BlockNo, Pages, REPORT_ORDER, Span};
use crate::pages::page_set::PageSet;
use crate::pages::pageblock::{Advice, Look};
use crate::pages::window::{DESCRIBED_TOGETHER, Window};

impl FreeAreas {
    /// A free reported pageblock behind whose description memory may be.
    pub(crate) fn described(&self) -> Option<BlockNo> {
        let block = self.lists[By::Free as usize].heads[WHOLE_REPORTED][REPORT_ORDER as usize];
        (block != BlockNo::NONE).then_some(block)
    }

    /// Isolates the free reported pageblocks among the [`DESCRIBED_TOGETHER`] that `block` is one of: none of their pages
    /// is free until [`FreeAreas::put_back_bare`]. Returns the first of the group, and bit i for its member i.
    pub(crate) fn isolate_bare(&mut self, window: &Window, block: BlockNo) -> (BlockNo, u32) {
        let first = BlockNo(block.0 - block.0 % DESCRIBED_TOGETHER);
        let end = first.row(DESCRIBED_TOGETHER as usize).end.min(window.top().block());
        let mut members = 0;
        for block in BlockNo::each(first..end) {
            let list_of = |pageblock| Self::lists_of(pageblock)[By::Free as usize] as usize;
            if self.blocks.get(window, block).is_none_or(|pageblock| list_of(pageblock) <= WHOLE_REPORTED * ORDERS) {
                continue;
            }
            self.blocks.at_mut(window, block).free = PageSet::EMPTY;
            self.relink(window, block);
            members |= 1 << (block.0 - first.0);
        }
        (first, members)
    }

    /// Returns isolated pageblocks to the free areas. They are not tried again before they were handed out, whatever the
    /// system below made of them.
    pub(crate) fn put_back_bare(&mut self, window: &Window, first: BlockNo, members: u32) {
        // Backwards, so that the list hands out ascending addresses.
        for i in (0..DESCRIBED_TOGETHER).rev().filter(|i| members >> i & 1 == 1) {
            let block = BlockNo(first.0 + i);
            let pageblock = self.blocks.at_mut(window, block);
            (pageblock.free, pageblock.bare) = (PageSet::FULL, true);
            self.relink(window, block);
        }
    }
}

// Pageblocks out of use: closed, and open again.

impl FreeAreas {
    /// Takes the free pages of `blocks` off all lists, and those that are freed there from now on. Returns how many pages of them
    /// are in use. No batch is in flight.
    pub fn close(&mut self, window: &Window, blocks: Range<BlockNo>) -> Pages {
        let mut used = Pages::ZERO;
        for block in self.blocks.own(window, blocks) {
            let pageblock = self.blocks.at_mut(window, block);
            let used_here = Pages::BLOCK - pageblock.free.len();
            used += used_here;
            if !pageblock.offline {
                self.idle -= pageblock.idle().len();
                pageblock.offline = true;
                self.closed.pages += Pages::BLOCK;
                self.closed.used += used_here;
                self.relink(window, block);
            }
        }
        used
    }

    /// Pages of `blocks` that are in use. No batch is in flight.
    pub(crate) fn used_in(&self, window: &Window, blocks: Range<BlockNo>) -> Pages {
        let used = |block| Pages::BLOCK - self.blocks.at(window, block).free.len();
        self.blocks.own(window, blocks).map(used).sum()
    }

    /// Undoes [`FreeAreas::close`].
    pub fn open(&mut self, window: &Window, blocks: Range<BlockNo>) {
        for block in self.blocks.own(window, blocks) {
            let pageblock = self.blocks.at_mut(window, block);
            if pageblock.offline {
                pageblock.offline = false;
                self.idle += pageblock.idle().len();
                self.closed.pages -= Pages::BLOCK;
                self.closed.used -= Pages::BLOCK - pageblock.free.len();
                self.relink(window, block);
            }
        }
    }

    /// Pages of closed pageblocks.
    pub(crate) fn closed(&self) -> Closed {
        self.closed
    }

    /// Free pages that may be handed out, or would be but for a batch in flight: none of closed pageblocks.
    pub(crate) fn open_free(&self) -> Pages {
        (self.pages - self.closed.pages) - (self.used - self.closed.used)
    }

    /// Whether none of the pages `run`, all of them the zone's, is free.
    pub(crate) fn is_used(&self, window: &Window, run: Span) -> bool {
        run.pieces().all(|(block, pages)| self.blocks.at(window, block).free.count_range(pages).is_zero())
    }
}

// Whole free pageblocks leave the zone to be unmapped, and come back when they are mapped again.

/// In this order: what is dearer to have again goes later.
const LEVELS: [usize; 4] = [WHOLE_BARE, WHOLE_REPORTED, WHOLE_BACKED, WHOLE_REFUSED];

/// What is behind a pageblock out of its zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Behind {
    /// It is mapped anew: nothing.
    #[default]
    New,
    /// What its state says: it was released.
    Released,
    /// Memory.
    Memory,
}

/// A whole pageblock out of its zone: a hole of the window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Out {
    pub(crate) block: BlockNo,
    advice: Advice,
    behind: Behind,
}

impl Out {
    /// A pageblock that is mapped anew, and what it asks for.
    pub(crate) fn new(block: BlockNo, advice: Advice) -> Self {
        Self { block, advice, behind: Behind::New }
    }
}

impl FreeAreas {
    /// Takes whole free pageblocks out of the zone, as many as `out` has room for; returns how many.
    pub(crate) fn take_out(&mut self, window: &Window, out: &mut [Out]) -> usize {
        let next = |zone: &Self| {
            let mut heads =
                LEVELS.iter().map(|&level| zone.lists[By::Free as usize].heads[level][REPORT_ORDER as usize]);
            heads.find(|&block| block != BlockNo::NONE)
        };
        for (taken, out) in out.iter_mut().enumerate() {
            let Some(block) = next(self) else { return taken };
            *out = self.take_block_out(window, block);
        }
        out.len()
    }

    /// Takes a row of bare pageblocks out of the zone, the first that begins in `blocks`, as many as `out` has room for. Returns
    /// how many, and where to look on. One of fewer than `least` stays, unless it lies beside a hole: then it makes no further one.
    pub(crate) fn take_bare_row(
        &mut self,
        window: &Window,
        blocks: Range<BlockNo>,
        least: usize,
        out: &mut [Out],
    ) -> (usize, BlockNo) {
        let is_bare = |&block: &BlockNo| {
            let pageblock = self.blocks.get(window, block);
            pageblock.is_some_and(|pageblock| pageblock.free.is_full() && Self::whole_level(pageblock) == WHOLE_BARE)
        };
        let Some(first) = BlockNo::each(blocks.clone()).find(is_bare) else { return (0, blocks.end) };
        let top = window.top().block();
        let len = BlockNo::each(first..top).take(out.len()).take_while(is_bare).count();
        let row = first.row(len);
        let before = first.0.checked_sub(1).map(BlockNo);
        let mut beside = before.into_iter().chain((row.end < top).then_some(row.end));
        if len < least && !beside.any(|block| window.is_unmapped(block)) {
            return (0, row.end);
        }
        for (block, out) in BlockNo::each(row.clone()).zip(out) {
            *out = self.take_block_out(window, block);
        }
        (len, row.end)
    }

    /// With it comes what it asked for. What is resident of it counts until [`FreeAreas::put_in`].
    fn take_block_out(&mut self, window: &Window, block: BlockNo) -> Out {
        let pageblock = self.blocks.at_mut(window, block);
        let idle = pageblock.idle().len();
        self.idle -= idle;
        self.leaving += idle;
        self.pages -= Pages::BLOCK;
        pageblock.free = PageSet::EMPTY;
        let backed = core::mem::replace(&mut pageblock.backed, PageSet::EMPTY);
        (pageblock.huge, pageblock.refused, pageblock.look) = (false, false, Look::None);
        let behind = if backed.is_empty() { Behind::Released } else { Behind::Memory };
        let advice = core::mem::take(&mut pageblock.advice);
        self.relink(window, block);
        Out { block, advice, behind }
    }

    /// Puts pageblocks that were taken out into the zone again, with what they ask for. Nothing is on its way out any more.
    pub(crate) fn put_in(&mut self, window: &Window, blocks: impl DoubleEndedIterator<Item = Out>) {
        self.leaving = Pages::ZERO;
        // Backwards, so that the list hands out ascending addresses.
        for Out { block, advice, behind } in blocks.rev() {
            let pageblock = self.blocks.at_mut(window, block);
            (pageblock.free, pageblock.advice) = (PageSet::FULL, advice);
            match behind {
                Behind::New => (pageblock.dirty, pageblock.lazy, pageblock.bare) = (false, false, true),
                // It stays dirty if it was released lazily, and is recalled under pressure.
                Behind::Released => {}
                Behind::Memory => pageblock.backed = PageSet::FULL,
            }
            self.pages += Pages::BLOCK;
            self.idle += pageblock.idle().len();
            self.relink(window, block);
        }
    }
}
