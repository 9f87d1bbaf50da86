//! Pageblocks out of use: closed, and open again.

use core::ops::Range;

use super::{FreeAreas, pieces};
use crate::base::units::PAGEBLOCK_PAGES;
use crate::pages::window::Window;

impl FreeAreas {
    /// Takes the free pages of `blocks` off all lists, and those that are freed there from now on; returns how many
    /// pages of them are in use. No batch is in flight.
    pub fn close(&mut self, window: &Window, blocks: Range<u32>) -> usize {
        self.of_mine(window, blocks)
            .map(|block| {
                let pageblock = self.block(window, block);
                self.idle -= pageblock.idle().len();
                pageblock.offline = true;
                self.relink(window, block);
                PAGEBLOCK_PAGES - self.block(window, block).free.len()
            })
            .sum()
    }

    /// Undoes [`FreeAreas::close`].
    pub fn open(&mut self, window: &Window, blocks: Range<u32>) {
        for block in self.of_mine(window, blocks) {
            let pageblock = self.block(window, block);
            if pageblock.offline {
                pageblock.offline = false;
                self.idle += pageblock.idle().len();
                self.relink(window, block);
            }
        }
    }

    /// Pages of closed pageblocks.
    pub fn closed(&self, window: &Window) -> usize {
        let all = 0..window.top() / PAGEBLOCK_PAGES as u32;
        self.of_mine(window, all).filter(|&block| self.block(window, block).offline).count() * PAGEBLOCK_PAGES
    }

    /// Whether none of the `pages` pages from `page` is free.
    pub fn is_used(&self, window: &Window, page: u32, pages: usize) -> bool {
        pieces(page, pages).all(|(block, first, n)| self.block(window, block).free.count_range(first, n) == 0)
    }

    /// Those of `blocks` that are this zone's.
    fn of_mine<'a>(&self, window: &'a Window, blocks: Range<u32>) -> impl Iterator<Item = u32> + use<'a> {
        let (node, top) = (self.node, window.top() / PAGEBLOCK_PAGES as u32);
        // SAFETY: a pageblock below the top; its node never changes.
        (blocks.start..blocks.end.min(top)).filter(move |&block| unsafe { (*window.block(block)).node } == node)
    }
}
