//! A pageblock that has changed is put on the lists that it belongs on.

use super::FreeAreas;
use super::lists::{By, FILLS, HINT_REFUSED, ORDERS, WHOLE_BACKED, WHOLE_BARE, WHOLE_REFUSED, WHOLE_REPORTED};
use crate::base::backing::Backing;
use crate::base::units::{BlockNo, PAGEBLOCK_PAGES, Pages, REPORT_ORDER};
use crate::pages::page_set::PageSet;
use crate::pages::pageblock::State;
use crate::pages::window::Window;

impl FreeAreas {
    /// The whole free backed pageblock to report next.
    pub(crate) fn whole_idle(&self) -> Option<BlockNo> {
        let block = self.lists[By::Free as usize].heads[WHOLE_BACKED][REPORT_ORDER as usize];
        (block != BlockNo::NONE).then_some(block)
    }

    /// Whether `block` is a hole in the window: none of its pages can be handed out. It is not the heap's, or is unmapped.
    pub(crate) fn is_hole(&self, window: &Window, block: BlockNo) -> bool {
        let block = self.blocks.at(window, block);
        block.free.is_empty() && block.backed.is_empty()
    }

    /// Backing of `block`.
    pub(crate) fn backing(&self, window: &Window, block: BlockNo) -> Backing {
        self.blocks.at(window, block).backing()
    }

    /// Whether a huge page is behind `block`, of which pages are in use: a report of the others would split it.
    pub(crate) fn is_shared_huge(&self, window: &Window, block: BlockNo) -> bool {
        let block = self.blocks.at(window, block);
        block.huge && !block.free.is_full()
    }

    /// Idle pages, if any can be reported. With a granule of several pages some may share theirs with pages in use.
    pub(crate) fn releasable(&self) -> Pages {
        let has_any = self.hints.iter().any(|&[head, _]| head != BlockNo::NONE);
        if has_any { self.idle } else { Pages::ZERO }
    }

    /// Whether `block` has free backed pages that may be reported.
    pub(crate) fn has_idle(&self, window: &Window, block: BlockNo) -> bool {
        let block = self.blocks.at(window, block);
        block.hint != 0 && !block.refused
    }

    /// The pageblock to report next: that with free backed pages which has not changed for the longest, among those
    /// with this backing.
    pub(crate) fn next_hint(&self, backing: Backing) -> Option<BlockNo> {
        let block = self.hints[backing as usize][0];
        (block != BlockNo::NONE).then_some(block)
    }

    /// The lists that `block` belongs on by what is free and by what is idle: level * [`ORDERS`] + order + 1; 0: none.
    #[inline]
    pub(super) fn lists_of(block: &State) -> [u8; 2] {
        let Some(order) = block.free.max_order().filter(|_| !block.offline) else {
            return [0; 2];
        };
        let level = match order {
            REPORT_ORDER => Self::whole_level(block),
            _ => usize::from(block.slabs) * FILLS + (Pages::BLOCK - block.free.len()).0 * FILLS / PAGEBLOCK_PAGES,
        };
        let list = |order: u32| (level * ORDERS) as u8 + order as u8 + 1;
        let all_idle = block.huge || block.free.minus(&block.backed).is_empty();
        let idle = if all_idle { Some(order) } else { block.idle().max_order() };
        [list(order), idle.map_or(0, list)]
    }

    /// The level of a whole free pageblock.
    pub(super) fn whole_level(block: &State) -> usize {
        match (block.backed.is_empty(), block.bare, block.refused) {
            (true, true, _) => WHOLE_BARE,
            (true, false, _) => WHOLE_REPORTED,
            (false, _, true) => WHOLE_REFUSED,
            (false, _, false) => WHOLE_BACKED,
        }
    }

    /// Puts `block`, which has changed, on the lists that it belongs on now: of the hint list's it becomes the last.
    pub(super) fn relink(&mut self, window: &Window, block: BlockNo) {
        let pageblock = self.blocks.at(window, block);
        let (lists, before) = (Self::lists_of(pageblock), pageblock.links.map(|link| link.list));
        let hinted = pageblock.hint != 0;
        for by in [By::Free, By::Idle] {
            let (list, before) = (lists[by as usize], before[by as usize]);
            if list != before {
                if before != 0 {
                    self.remove(window, by, block);
                }
                if list != 0 {
                    self.push(window, by, list as usize - 1, block);
                }
            }
        }
        if hinted {
            self.unhint(window, block);
        }
        if lists[By::Idle as usize] != 0 && self.blocks.at(window, block).has_releasable(window.granule()) {
            self.hint(window, block);
        }
    }

    fn push(&mut self, window: &Window, by: By, list: usize, block: BlockNo) {
        let lists = &mut self.lists[by as usize];
        lists.some[list / ORDERS] |= 1 << (list % ORDERS);
        let head = core::mem::replace(&mut lists.heads[list / ORDERS][list % ORDERS], block);
        let link = &mut self.blocks.at_mut(window, block).links[by as usize];
        (link.next, link.prev, link.list) = (head, BlockNo::NONE, list as u8 + 1);
        if head != BlockNo::NONE {
            self.blocks.at_mut(window, head).links[by as usize].prev = block;
        }
    }

    fn remove(&mut self, window: &Window, by: By, block: BlockNo) {
        let link = &mut self.blocks.at_mut(window, block).links[by as usize];
        let (next, prev) = (link.next, link.prev);
        let list = core::mem::take(&mut link.list) as usize - 1;
        if next != BlockNo::NONE {
            self.blocks.at_mut(window, next).links[by as usize].prev = prev;
        }
        if prev != BlockNo::NONE {
            self.blocks.at_mut(window, prev).links[by as usize].next = next;
            return;
        }
        let lists = &mut self.lists[by as usize];
        lists.heads[list / ORDERS][list % ORDERS] = next;
        if next == BlockNo::NONE {
            lists.some[list / ORDERS] &= !(1 << (list % ORDERS));
        }
    }

    pub(super) fn hint_of(block: &State) -> usize {
        if block.refused { HINT_REFUSED } else { block.backing() as usize }
    }

    fn hint(&mut self, window: &Window, block: BlockNo) {
        let pageblock = self.blocks.at_mut(window, block);
        let list = Self::hint_of(pageblock);
        let ends = &mut self.hints[list];
        let tail = core::mem::replace(&mut ends[1], block);
        (pageblock.hint, pageblock.hint_next, pageblock.hint_prev) = (list as u8 + 1, BlockNo::NONE, tail);
        if tail == BlockNo::NONE {
            ends[0] = block;
        } else {
            self.blocks.at_mut(window, tail).hint_next = block;
        }
    }

    fn unhint(&mut self, window: &Window, block: BlockNo) {
        let pageblock = self.blocks.at_mut(window, block);
        let (next, prev) = (pageblock.hint_next, pageblock.hint_prev);
        let list = core::mem::take(&mut pageblock.hint) as usize - 1;
        if next != BlockNo::NONE {
            self.blocks.at_mut(window, next).hint_prev = prev;
        } else {
            self.hints[list][1] = prev;
        }
        if prev != BlockNo::NONE {
            self.blocks.at_mut(window, prev).hint_next = next;
        } else {
            self.hints[list][0] = next;
        }
    }
}

// What a zone says of one pageblock's pages, for figures.

/// The pages of a pageblock.
pub(crate) struct PageStates {
    /// Whether all pages are free.
    pub is_free: bool,
    /// Pages that are the zone's: not a hole's, nor before the window's first page.
    pub ours: PageSet,
    /// Pages that count as resident: handed out since they were last released, or behind a huge page.
    pub backed: PageSet,
}

impl FreeAreas {
    /// The order of the largest free block; `None`: no page is free.
    pub(crate) fn largest_free(&self) -> Option<u32> {
        self.lists[By::Free as usize].largest()
    }

    /// States of the pages of `block`; `None`: it is a hole.
    pub(crate) fn page_states(&self, window: &Window, block: BlockNo) -> Option<PageStates> {
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
