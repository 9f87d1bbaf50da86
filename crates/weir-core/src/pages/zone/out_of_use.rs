//! Pageblocks out of use for a time: isolated for what describes them, closed, or unmapped.

use core::ops::Range;

use super::lists::{By, ORDERS, WHOLE_BACKED, WHOLE_BARE, WHOLE_REFUSED, WHOLE_REPORTED};
use super::{FreeAreas, pieces};
use crate::base::units::{NONE, PAGEBLOCK_PAGES, REPORT_ORDER};
use crate::pages::page_set::PageSet;
use crate::pages::pageblock::Look;
use crate::pages::window::{DESCRIBED_TOGETHER, Window};

impl FreeAreas {
    /// A free reported pageblock behind whose description memory may be.
    pub(crate) fn described(&self) -> Option<u32> {
        let block = self.lists[By::Free as usize].heads[WHOLE_REPORTED][REPORT_ORDER as usize];
        (block != NONE).then_some(block)
    }

    /// Isolates the free reported pageblocks among the [`DESCRIBED_TOGETHER`] that `block` is one of: none of their pages
    /// is free until [`FreeAreas::put_back_bare`]. Returns the first of the group, and bit i for its member i.
    pub(crate) fn isolate_bare(&mut self, window: &Window, block: u32) -> (u32, u32) {
        let first = block - block % DESCRIBED_TOGETHER;
        let end = (first + DESCRIBED_TOGETHER).min(window.top() / PAGEBLOCK_PAGES as u32);
        let mut members = 0;
        for block in first..end {
            let list_of = |pageblock| Self::lists_of(pageblock)[By::Free as usize] as usize;
            if self.blocks.get(window, block).is_none_or(|pageblock| list_of(pageblock) <= WHOLE_REPORTED * ORDERS) {
                continue;
            }
            self.blocks.at_mut(window, block).free = PageSet::EMPTY;
            self.relink(window, block);
            members |= 1 << (block - first);
        }
        (first, members)
    }

    /// Returns isolated pageblocks to the free areas. They are not tried again before they were handed out, whatever the
    /// system below made of them.
    pub(crate) fn put_back_bare(&mut self, window: &Window, first: u32, members: u32) {
        // Backwards, so that the list hands out ascending addresses.
        for block in (first..first + DESCRIBED_TOGETHER).rev().filter(|&block| members >> (block - first) & 1 == 1) {
            let pageblock = self.blocks.at_mut(window, block);
            (pageblock.free, pageblock.bare) = (PageSet::FULL, true);
            self.relink(window, block);
        }
    }
}

// Pageblocks out of use: closed, and open again.

impl FreeAreas {
    /// Takes the free pages of `blocks` off all lists, and those that are freed there from now on; returns how many
    /// pages of them are in use. No batch is in flight.
    pub fn close(&mut self, window: &Window, blocks: Range<u32>) -> usize {
        let mut used = 0;
        for block in self.blocks.own(window, blocks) {
            let pageblock = self.blocks.at_mut(window, block);
            self.idle -= pageblock.idle().len();
            pageblock.offline = true;
            used += PAGEBLOCK_PAGES - pageblock.free.len();
            self.relink(window, block);
        }
        used
    }

    /// Pages of `blocks` that are in use. No batch is in flight.
    pub(crate) fn used_in(&self, window: &Window, blocks: Range<u32>) -> usize {
        let used = |block| PAGEBLOCK_PAGES - self.blocks.at(window, block).free.len();
        self.blocks.own(window, blocks).map(used).sum()
    }

    /// Undoes [`FreeAreas::close`].
    pub fn open(&mut self, window: &Window, blocks: Range<u32>) {
        for block in self.blocks.own(window, blocks) {
            let pageblock = self.blocks.at_mut(window, block);
            if pageblock.offline {
                pageblock.offline = false;
                self.idle += pageblock.idle().len();
                self.relink(window, block);
            }
        }
    }

    /// Pages of closed pageblocks.
    pub(crate) fn closed(&self, window: &Window) -> usize {
        let all = self.blocks.own(window, 0..window.top() / PAGEBLOCK_PAGES as u32);
        all.filter(|&block| self.blocks.at(window, block).offline).count() * PAGEBLOCK_PAGES
    }

    /// Whether none of the `pages` pages from `page`, all of them the zone's, is free.
    pub(crate) fn is_used(&self, window: &Window, page: u32, pages: usize) -> bool {
        pieces(page, pages).all(|(block, first, n)| self.blocks.at(window, block).free.count_range(first, n) == 0)
    }
}

// Whole free pageblocks leave the zone to be unmapped, and come back when they are mapped again.

/// In this order: what is dearer to have again goes later.
const LEVELS: [usize; 4] = [WHOLE_BARE, WHOLE_REPORTED, WHOLE_BACKED, WHOLE_REFUSED];

impl FreeAreas {
    /// Takes whole free pageblocks out of the zone, as many as `out` has room for; returns how many. They are holes of the
    /// window from now on.
    pub(crate) fn take_out(&mut self, window: &Window, out: &mut [u32]) -> usize {
        let mut taken = 0;
        for level in LEVELS {
            while taken < out.len() {
                let block = self.lists[By::Free as usize].heads[level][REPORT_ORDER as usize];
                if block == NONE {
                    break;
                }
                let pageblock = self.blocks.at_mut(window, block);
                self.idle -= pageblock.idle().len();
                self.pages -= PAGEBLOCK_PAGES;
                (pageblock.free, pageblock.backed) = (PageSet::EMPTY, PageSet::EMPTY);
                (pageblock.huge, pageblock.dirty, pageblock.refused) = (false, false, false);
                (pageblock.look, pageblock.bare) = (Look::None, true);
                self.relink(window, block);
                out[taken] = block;
                taken += 1;
            }
        }
        taken
    }

    /// Puts pageblocks that were taken out into the zone again: freshly mapped ones, or, if `is_old`, with what they held.
    pub(crate) fn put_in(&mut self, window: &Window, blocks: impl DoubleEndedIterator<Item = u32>, is_old: bool) {
        // Backwards, so that the list hands out ascending addresses.
        for block in blocks.rev() {
            let pageblock = self.blocks.at_mut(window, block);
            pageblock.free = PageSet::FULL;
            pageblock.backed = if is_old { PageSet::FULL } else { PageSet::EMPTY };
            self.pages += PAGEBLOCK_PAGES;
            self.idle += pageblock.idle().len();
            self.relink(window, block);
        }
    }
}
