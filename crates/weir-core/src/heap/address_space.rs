//! The system refuses a mapping for a block: what the heap has mapped and does not use is given back, if that can help.
//!
//! `RLIMIT_AS`, `RLIMIT_DATA` and a strict overcommit count what is mapped. Of that, retained blocks and whole free pageblocks
//! are of no use to a program that is refused a block. Whether they are enough one more call tells: it maps what would be
//! missing without them. So a size that can never succeed costs two calls, and the heap stays as it is.

use super::Heap;
use crate::base::run::Run;
use crate::base::units::{PAGE, PAGEBLOCK};
use crate::pages::Short;
use crate::platform::Platform;
use crate::reclaim::Kind;

/// Bytes beyond which nothing is mapped: x86-64 gives a program 2^47 of addresses, AArch64 2^48.
pub(super) const MOST: usize = 1 << 48;

impl<P: Platform> Heap<P> {
    /// Tries `map` again, which was refused `bytes` of new memory.
    #[cold]
    pub(super) fn map_again<T>(&self, bytes: usize, map: impl Fn() -> Result<T, Short>) -> Result<T, Short> {
        if self.pages().hard_limit().is_some() {
            let found = self.reclaim_for(bytes, &map);
            if found.is_ok() || self.pages().hard_room() < bytes {
                return found;
            }
        }
        self.stalled(|| {
            let unused = self.mapped().retained() + self.pages().free_bytes();
            let found = if unused > 0 && (bytes <= unused || self.can_map(bytes - unused)) {
                self.mapped().unmap_retained();
                // Those may have been enough, and cost less to have again.
                map().or_else(|Short| self.unmap_and_try(bytes, &map))
            } else {
                Err(Short)
            };
            // More than the heap holds is not to be had from its caches.
            let is_possible = bytes <= self.resident_pages() * PAGE;
            found.or_else(|Short| match is_possible {
                true => self.reclaim_and_try(Kind::Shortage, bytes, || self.unmap_and_try(bytes, &map)),
                false => Err(Short),
            })
        })
    }

    /// Whether the system maps `bytes` now.
    fn can_map(&self, bytes: usize) -> bool {
        let len = bytes.next_multiple_of(PAGE);
        let Ok(addr) = self.platform().map(len, PAGE) else { return false };
        self.platform().unmap(Run { addr, len });
        true
    }

    /// Unmaps free pageblocks and tries `map`, if there were any. One more than the block needs is for the table of blocks,
    /// which may have to grow.
    fn unmap_and_try<T>(&self, bytes: usize, map: impl Fn() -> Result<T, Short>) -> Result<T, Short> {
        if self.pages().unmap_free(bytes + PAGEBLOCK) > 0 { map() } else { Err(Short) }
    }
}
