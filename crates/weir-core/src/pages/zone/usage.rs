//! What a zone says of one pageblock's pages, for figures.

use super::FreeAreas;
use super::lists::By;
use crate::pages::page_set::PageSet;
use crate::pages::window::Window;

/// The pages of a pageblock.
pub(crate) struct PageStates {
    /// All of them are free.
    pub is_free: bool,
    /// Those that are the zone's: not a hole's, nor before the window's first page.
    pub ours: PageSet,
    /// Those that count as resident: handed out since they were last released, or behind a huge page.
    pub backed: PageSet,
}

impl FreeAreas {
    /// The order of the largest free block; `None`: no page is free.
    pub(crate) fn largest_free(&self) -> Option<u32> {
        self.lists[By::Free as usize].largest()
    }

    /// What is known of the pages of `block`; `None`: it is a hole.
    pub(crate) fn page_states(&self, window: &Window, block: u32) -> Option<PageStates> {
        if self.is_hole(window, block) {
            return None;
        }
        let pageblock = self.blocks.at(window, block);
        // Isolated pages are not free, but backed.
        let ours = pageblock.free.or(&pageblock.backed);
        Some(PageStates {
            is_free: pageblock.free.is_full(),
            ours,
            backed: if pageblock.huge { ours } else { pageblock.backed },
        })
    }
}
