//! Whether a zone's lists and counts agree with its pageblocks.

use super::lists::{By, LEVELS, ORDERS};
use super::{Closed, FreeAreas};
use crate::base::fault::{Fault, check};
use crate::base::units::{BlockNo, Pages};
use crate::pages::window::Window;

/// Sums over a zone's pageblocks, in pages.
#[derive(Default)]
pub(crate) struct Sum {
    pub(crate) free: Pages,
    pub(crate) idle: Pages,
    closed: Closed,
}

impl FreeAreas {
    /// Checks every list and every pageblock of the zone.
    pub(crate) fn audit(&self, window: &Window) -> Result<Sum, Fault> {
        let listed = [self.audit_lists(window, By::Free)?, self.audit_lists(window, By::Idle)?];
        let hinted = self.audit_hints(window)?;
        let (mut sum, mut on_lists, mut on_hints) = (Sum::default(), [0; 2], 0);
        for number in self.blocks.own(window, window.blocks()) {
            let block = self.blocks.at(window, number);
            let idle = block.idle();
            let granule = window.granule();
            check(
                (block.hint != 0) == block.has_releasable(granule),
                "hinted, or not, against its idle pages",
                number.index(),
            )?;
            check(block.backed == block.backed.whole(granule), "memory behind a part of a page", number.index())?;
            for (by, is_none) in [block.free.is_empty() || block.offline, idle.is_empty()].into_iter().enumerate() {
                check((block.links[by].list != 0) != is_none, "listed, or not, against its pages", number.index())?;
                on_lists[by] += usize::from(block.links[by].list != 0);
            }
            on_hints += usize::from(block.hint != 0);
            sum.free += block.free.len();
            sum.idle += idle.len();
            if block.offline {
                sum.closed.pages += Pages::BLOCK;
                sum.closed.used += Pages::BLOCK - block.free.len();
            }
        }
        check(listed == on_lists, "pageblocks on lists", listed[0])?;
        check(hinted == on_hints, "pageblocks on hint lists", hinted)?;
        check(sum.idle == self.idle, "idle pages of a zone", self.idle.0)?;
        check(sum.closed == self.closed, "pages of a zone's closed pageblocks", self.closed.pages.0)?;
        check(self.used + sum.free == self.pages, "used and free pages of a zone", self.used.0)?;
        Ok(sum)
    }

    fn audit_lists(&self, window: &Window, by: By) -> Result<usize, Fault> {
        let (lists, mut listed) = (&self.lists[by as usize], 0);
        for (level, order) in (0..LEVELS).flat_map(|level| (0..ORDERS).map(move |order| (level, order))) {
            let (mut at, mut prev, list) = (lists.heads[level][order], BlockNo::NONE, level * ORDERS + order);
            check((lists.some[level] >> order & 1 == 1) == (at != BlockNo::NONE), "the bit of a list", list)?;
            while at != BlockNo::NONE {
                check(self.blocks.is_own(window, at), "a pageblock on another node's list", at.index())?;
                let block = self.blocks.at(window, at);
                let link = block.links[by as usize];
                check(link.list as usize == list + 1 && link.prev == prev, "a link of a list", at.index())?;
                check(
                    Self::lists_of(block)[by as usize] as usize == list + 1,
                    "a pageblock on the wrong list",
                    at.index(),
                )?;
                (prev, at, listed) = (at, link.next, listed + 1);
            }
        }
        Ok(listed)
    }

    fn audit_hints(&self, window: &Window) -> Result<usize, Fault> {
        let mut hinted = 0;
        for (list, [head, tail]) in self.hints.into_iter().enumerate() {
            let (mut at, mut prev) = (head, BlockNo::NONE);
            while at != BlockNo::NONE {
                check(self.blocks.is_own(window, at), "a pageblock on another node's hint list", at.index())?;
                let block = self.blocks.at(window, at);
                let right = block.hint as usize == list + 1 && block.hint_prev == prev;
                check(right && Self::hint_of(block) == list, "a link of a hint list", at.index())?;
                (prev, at, hinted) = (at, block.hint_next, hinted + 1);
            }
            // An empty list's tail is never read through, but it must be known to be empty.
            check(tail == prev, "the tail of a hint list", list)?;
        }
        Ok(hinted)
    }
}
