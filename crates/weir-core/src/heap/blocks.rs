//! Blocks mapped on their own; and what is done where the system refuses a mapping for one.
//!
//! `RLIMIT_AS`, `RLIMIT_DATA` and a strict overcommit count what is mapped. Of that, retained blocks and whole free pageblocks
//! are of no use to a program that is refused a block. Whether they are enough one more call tells: it maps what would be
//! missing without them. So a size that can never succeed costs two calls, or three where there is a hard limit, and the heap stays
//! as it is. A block that is aligned to more than a page is mapped with so many bytes more, which are unmapped again.

use core::ptr::null_mut;

use super::large::Large;
use crate::base::run::Run;
use crate::base::units::{Bytes, Order, PAGEBLOCK, Pages};
use crate::pages::Short;
use crate::platform::Platform;
use crate::reclaim::Kind;

/// Bytes beyond which nothing is mapped: x86-64 gives a program 2^47 of addresses, AArch64 2^48.
pub(super) const MOST: usize = 1 << 48;

/// The part of the budget that a block counts for before it is touched, at most. At a GiB a second a program touches an eighth of
/// 80 MiB in 10 ms, the time between two readings near a limit.
const PART_AHEAD: usize = 8;

impl<P: Platform> Large<'_, P> {
    /// A block mapped on its own, and whether it is known to be zero; null when memory is refused.
    pub(super) fn map_block(self, pages: Pages, align: Order) -> (*mut u8, bool) {
        let map = || self.heap.mapped().map_block(pages, align);
        let addresses = if align > Order::PAGE { pages + align.pages() } else { pages };
        let Ok(block) = map().or_else(|_| self.map_again(pages.bytes(), addresses.bytes(), map)) else {
            return (null_mut(), false);
        };
        if !block.expected.is_zero() {
            // Before the program touches it.
            self.heap.caches.flush_before(block.expected);
            let comes_back = self.heap.reclaim.windows.is_patient();
            let kind = if comes_back { Kind::RoomForBlockAgain } else { Kind::RoomForBlock };
            self.heap.direct().make_room(kind, block.expected.pages_down());
            self.note_expected(block.expected);
        }
        (block.addr as *mut u8, block.zero)
    }

    /// Makes all of a fresh block read as zero, which it does already if `is_zero`.
    ///
    /// # Safety
    /// The block was allocated here just now, or is null, and nobody has it yet.
    #[cold]
    pub(super) unsafe fn zeroed(self, (block, is_zero): (*mut u8, bool)) -> *mut u8 {
        if !block.is_null() && !is_zero {
            // All of it, as for objects: a retained block may be longer than its last page.
            // SAFETY: the block was allocated here just now, and the caller does not have it yet.
            unsafe {
                let len = self.heap.usable_size(block);
                self.heap.mapped().wipe(Run { addr: block as usize, len });
            }
        }
        block
    }

    /// Gives a block mapped on its own, which it stays, another length. Where growth is refused, memory is given back and reclaimed
    /// first.
    pub(super) fn resize_mapped(self, block: *mut u8, len: usize, size: usize) -> *mut u8 {
        if size > MOST {
            return null_mut();
        }
        let resize = || match self.heap.mapped().resize_mapped(block, len, size) {
            new if new.is_null() => Err(Short),
            new => Ok(new),
        };
        let more = Bytes(size.saturating_sub(len));
        let new =
            resize().or_else(|Short| if more > Bytes::ZERO { self.map_again(more, more, resize) } else { Err(Short) });
        if new.is_ok() && more > Bytes::ZERO {
            self.note_expected(self.heap.mapped().touched_of(more));
        }
        new.unwrap_or(null_mut())
    }

    /// The program is about to touch `bytes` of a block that it gets.
    ///
    /// It may never touch most of them. So no more than a part of the budget counts at a time: readings tell the rest while the
    /// program touches that. What is more than the whole budget it touches in part at most.
    fn note_expected(self, bytes: Bytes) {
        let (budget, least) = (Bytes(self.heap.reclaim().budget_room().capacity as usize), Bytes(PAGEBLOCK));
        let most = if bytes <= budget { (budget / PART_AHEAD).max(least) } else { least };
        self.heap.direct().note_resident(bytes.min(most).pages_down());
    }

    /// A block mapped on its own for a run that has grown to `size` bytes; null: it stays in the heap.
    pub(super) fn map_grown(self, size: usize) -> *mut u8 {
        if !self.heap.mapped().takes_grown(size) {
            return null_mut();
        }
        self.map_block(Pages::to_hold(size), Order::PAGE).0
    }

    /// Tries `map` again, which was refused `bytes` of new memory. The platform maps `addresses` bytes for it, if only for a while.
    #[cold]
    pub(super) fn map_again<T>(
        self,
        bytes: Bytes,
        addresses: Bytes,
        map: impl Fn() -> Result<T, Short>,
    ) -> Result<T, Short> {
        if self.heap.pages().hard_limit().is_some() {
            let wanted = Bytes(bytes.0.next_multiple_of(self.heap.platform().release_unit()));
            let lacks_room = || self.heap.pages().hard_room() < wanted;
            // Another thread may have held the room for a moment. Where there is enough it is the system that refuses.
            let found = map().or_else(|Short| match lacks_room() {
                true => self.heap.direct().reclaim_for_room(bytes, &map),
                false => Err(Short),
            });
            if found.is_ok() || lacks_room() {
                return found;
            }
        }
        self.heap.direct().stalled(|| {
            let unused = self.heap.mapped().retained() + self.heap.pages().free_bytes();
            let found = if unused > Bytes::ZERO && (addresses <= unused || self.can_map(addresses - unused)) {
                self.heap.mapped().unmap_retained();
                // Those may have been enough, and cost less to have again.
                map().or_else(|Short| self.unmap_and_try(addresses, &map))
            } else {
                Err(Short)
            };
            // More than the heap holds is not to be had from its caches.
            let is_possible = addresses <= self.heap.reclaim().resident_pages().bytes();
            found.or_else(|Short| {
                let mut found = Err(Short);
                if is_possible {
                    self.heap.direct().reclaim_and_try(Kind::Shortage, addresses, &mut || {
                        found = self.unmap_and_try(addresses, &map);
                        found.is_ok()
                    });
                }
                found
            })
        })
    }

    /// Whether the system maps `bytes` now.
    fn can_map(self, bytes: Bytes) -> bool {
        let len = bytes.pages_up().length();
        let Ok(addr) = self.heap.platform().map(len, Order::PAGE) else { return false };
        self.heap.platform().unmap(Run { addr, len });
        true
    }

    /// Unmaps free pageblocks and tries `map`, if there were any. One more than the block needs is for the table of blocks,
    /// which may have to grow.
    fn unmap_and_try<T>(self, bytes: Bytes, map: impl Fn() -> Result<T, Short>) -> Result<T, Short> {
        if self.heap.pages().unmap_free(bytes + Bytes(PAGEBLOCK)) > Bytes::ZERO { map() } else { Err(Short) }
    }
}
