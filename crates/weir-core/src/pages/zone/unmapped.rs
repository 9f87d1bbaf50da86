//! Whole free pageblocks leave the zone to be unmapped, and come back when they are mapped again.

use super::FreeAreas;
use super::lists::{By, WHOLE_BACKED, WHOLE_BARE, WHOLE_REFUSED, WHOLE_REPORTED};
use crate::base::units::{NONE, PAGEBLOCK_PAGES, REPORT_ORDER};
use crate::pages::page_set::PageSet;
use crate::pages::pageblock::Look;
use crate::pages::window::Window;

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
