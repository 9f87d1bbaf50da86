//! Which pageblocks need no description: those that are wholly free and reported.

use super::FreeAreas;
use super::lists::{By, ORDERS, WHOLE_REPORTED};
use crate::base::units::{NONE, PAGEBLOCK_PAGES, REPORT_ORDER};
use crate::pages::page_set::PageSet;
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
