//! Four kinds of a zone's huge pages:
//!
//! - those in little use;
//! - those that were split and are yet to be cooled (`huge_pages/sparse.rs`);
//! - those that the kernel put there behind the engine's back;
//! - those that are due behind what is full and still (`huge_pages/collapse.rs`).

use core::ops::Range;

use super::FreeAreas;
use crate::base::units::{BlockNo, Pages, Span};
use crate::pages::pageblock::{Advice, Look, State, Still};
use crate::pages::window::Window;
use crate::policy::huge_page_advice::is_filled;

/// How far a pageblock was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pages) enum Fill {
    /// So many of its pages were.
    Pages(Pages),
    /// As many of them as are resident.
    IfResident(Pages),
    /// Nothing shows it.
    Unknown,
}

/// Outcome of a look for pageblocks that are full and still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StillLook {
    /// A huge page is due behind it.
    pub(crate) due: Option<BlockNo>,
    /// Some may be due after further looks.
    pub(crate) goes_on: bool,
}

impl FreeAreas {
    /// Pageblocks of `blocks` that are this zone's and in use.
    fn each<'a>(&'a self, window: &'a Window, blocks: Range<BlockNo>) -> impl Iterator<Item = (BlockNo, &'a State)> {
        let end = blocks.end.min(window.top().block());
        BlockNo::each(blocks.start..end).filter_map(|block| Some((block, self.blocks.get(window, block)?)))
    }

    /// Calls `f` with each of them, to change it.
    fn each_mut(&mut self, window: &Window, blocks: Range<BlockNo>, mut f: impl FnMut(BlockNo, &mut State)) {
        for block in self.blocks.own(window, blocks) {
            let pageblock = self.blocks.at_mut(window, block);
            if !pageblock.offline {
                f(block, pageblock);
            }
        }
    }

    /// Looks at the pageblocks `blocks`. A huge page is in little use if at most `limit` of its pages are in use. Pages
    /// that `hollow` counts, of slabs without an object on them, are not in use. Returns whether any is due to be
    /// split.
    pub(crate) fn look(
        &mut self,
        window: &Window,
        blocks: Range<BlockNo>,
        limit: Pages,
        hollow: impl Fn(BlockNo) -> Pages,
    ) -> bool {
        let mut any = false;
        self.each_mut(window, blocks, |block, pageblock| {
            let free = pageblock.free.len();
            let idle = free + hollow(block);
            let used = Pages::BLOCK.saturating_sub(idle);
            let may_be = pageblock.huge && !pageblock.refused && free < Pages::BLOCK && !idle.is_zero();
            pageblock.look = match pageblock.look {
                Look::Torn => Look::Torn,
                _ if !may_be || used > limit => Look::None,
                Look::None => Look::Seen,
                Look::Seen | Look::Due => Look::Due,
            };
            any |= pageblock.look == Look::Due;
        });
        any
    }

    /// The first of `blocks` that is due to be split and has at most `pages` idle pages; and how many it has.
    pub(crate) fn next_due(&self, window: &Window, blocks: Range<BlockNo>, pages: Pages) -> Option<(BlockNo, Pages)> {
        self.each(window, blocks).find_map(|(block, pageblock)| {
            let idle = pageblock.idle().len();
            (pageblock.look == Look::Due && idle <= pages).then_some((block, idle))
        })
    }

    /// Moves those of `blocks` that were split to `out`, until it is full; returns how many.
    pub(crate) fn take_torn(&mut self, window: &Window, blocks: Range<BlockNo>, out: &mut [BlockNo]) -> usize {
        let mut n = 0;
        self.each_mut(window, blocks, |block, pageblock| {
            if n < out.len() && pageblock.look == Look::Torn {
                (pageblock.look, out[n]) = (Look::None, block);
                n += 1;
            }
        });
        n
    }

    /// Whether pageblocks were split since the last call.
    pub(crate) fn has_torn(&mut self) -> bool {
        core::mem::take(&mut self.torn)
    }

    /// Counts those of `blocks` that are in use and have no huge page as just split; returns whether there are any.
    pub(crate) fn tear(&mut self, window: &Window, blocks: Range<BlockNo>) -> bool {
        let mut any = false;
        self.each_mut(window, blocks, |_, pageblock| {
            if pageblock.is_in_use() && !pageblock.huge && !pageblock.advice.may_be_huge() {
                pageblock.look = Look::Torn;
                any = true;
            }
        });
        self.torn |= any;
        any
    }

    /// None of `blocks` counts as a huge page any more: what was not handed out of them counts as not resident. Where `may_be` a huge
    /// page is there from before all the same, all that is free of its pageblock goes back at the next report.
    pub(crate) fn forget_huge(&mut self, window: &Window, mut blocks: Range<BlockNo>, may_be: bool) {
        let next = |zone: &Self, blocks: Range<BlockNo>| {
            zone.each(window, blocks).find(|(_, pageblock)| pageblock.huge).map(|(block, _)| block)
        };
        while let Some(block) = next(self, blocks.clone()) {
            blocks.start = block.next();
            let pageblock = self.blocks.at_mut(window, block);
            let idle = pageblock.idle().len();
            pageblock.huge = false;
            if may_be && !pageblock.advice.may_be_huge() {
                pageblock.advice = Advice::Collapsed;
            }
            self.idle = self.idle + pageblock.idle().len() - idle;
            self.relink(window, block);
        }
    }

    /// The first of `blocks` that is in use and counts as a huge page, or does not: some of its pages may be reported then.
    pub(crate) fn next_in_use(&self, window: &Window, is_huge: bool, blocks: Range<BlockNo>) -> Option<BlockNo> {
        let is_it = |pageblock: &State| pageblock.is_in_use() && !pageblock.dirty && pageblock.huge == is_huge;
        self.each(window, blocks).find(|(_, pageblock)| is_it(pageblock)).map(|(block, _)| block)
    }

    /// The first row of `blocks` that asks for huge pages, with nothing behind it yet, asks no more. Returns it; it is
    /// empty if there is none.
    pub(in crate::pages) fn ask_no_more(&mut self, window: &Window, blocks: Range<BlockNo>) -> Range<BlockNo> {
        let mut row = blocks.end..blocks.end;
        self.each_mut(window, blocks, |block, pageblock| {
            let asks = pageblock.advice == Advice::Asks && pageblock.backed.is_empty();
            if asks && (row.is_empty() || row.end == block) {
                pageblock.advice = Advice::None;
                row = row.start.min(block)..block.next();
            }
        });
        row
    }

    /// The pageblocks that ask, of which none but the pages `run` was ever taken, are not to get their huge pages. Returns them,
    /// a row; it is empty if there is none. Of another that `run` lies in nothing is known here: it may have its own already.
    pub(in crate::pages) fn asks_not(&mut self, window: &Window, run: Span) -> Range<BlockNo> {
        let mut row = BlockNo(0)..BlockNo(0);
        for (block, pages) in run.pieces() {
            let pageblock = self.blocks.at_mut(window, block);
            if pageblock.advice == Advice::Whole && pageblock.backed.len() == Pages(pages.len()) {
                pageblock.advice = Advice::None;
                row = if row.is_empty() { block } else { row.start }..block.next();
            }
        }
        row
    }

    /// How far programs may be taken to have filled `block`: what the heap is to learn of it.
    pub(in crate::pages) fn fill(&self, window: &Window, block: BlockNo) -> Fill {
        let Some(pageblock) = self.blocks.get(window, block).filter(|pageblock| pageblock.is_in_use()) else {
            return Fill::Pages(Pages::ZERO);
        };
        let used = Pages::BLOCK - pageblock.free.len();
        match pageblock.advice {
            Advice::None => Fill::IfResident(used),
            // Objects are written when they are handed out. Behind a huge page nothing shows whether a run was.
            _ if pageblock.slabs || !is_filled(used) => Fill::Pages(used),
            _ => Fill::Unknown,
        }
    }

    /// One look at `blocks`, up to the first behind which a huge page is due now; those after it were not looked at.
    pub(crate) fn look_for_still(&mut self, window: &Window, blocks: Range<BlockNo>) -> StillLook {
        let mut look = StillLook { due: None, goes_on: false };
        for block in self.blocks.own(window, blocks) {
            match self.blocks.at_mut(window, block).grows_still() {
                Still::Not => {}
                Still::Yet => look.goes_on = true,
                Still::Due => {
                    look = StillLook { due: Some(block), goes_on: true };
                    break;
                }
            }
        }
        look
    }

    /// A huge page was put behind `block`. Returns whether it is there for sure.
    pub(crate) fn note_collapsed(&mut self, window: &Window, block: BlockNo) -> bool {
        let is_sure = self.blocks.at_mut(window, block).is_collapsed();
        self.torn |= !is_sure;
        is_sure
    }

    /// There was no huge page for `block`: it is due again.
    pub(crate) fn note_not_collapsed(&mut self, window: &Window, block: BlockNo) {
        self.blocks.at_mut(window, block).stays_due();
    }

    /// All of `block` is resident, and `inside` pages of its slabs had been reported. If so, or if others had, a huge page
    /// is behind it: returns how many of its pages are in use.
    pub(crate) fn collapsed(&mut self, window: &Window, block: BlockNo, inside: Pages) -> Option<Pages> {
        let pageblock = self.blocks.at_mut(window, block);
        if pageblock.free.minus(&pageblock.backed).is_empty() && inside.is_zero() {
            return None;
        }
        let idle = pageblock.idle().len();
        pageblock.huge = true;
        self.idle = self.idle + pageblock.idle().len() - idle;
        let used = Pages::BLOCK - pageblock.free.len();
        self.relink(window, block);
        Some(used.saturating_sub(inside))
    }
}
