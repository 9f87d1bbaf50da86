//! Pageblocks out of use: closed, and open again.

use core::ops::Range;

use super::{FreeAreas, pieces};
use crate::base::units::PAGEBLOCK_PAGES;
use crate::pages::window::Window;

impl FreeAreas {
    /// Takes the free pages of `blocks` off all lists, and those that are freed there from now on; returns how many
    /// pages of them are in use. No batch is in flight.
    pub(crate) fn close(&mut self, window: &Window, blocks: Range<u32>) -> usize {
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
    pub(crate) fn open(&mut self, window: &Window, blocks: Range<u32>) {
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
