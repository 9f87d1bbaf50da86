//! Whether programs touch the whole of their large blocks. Huge pages pay behind blocks that are filled, and cost
//! memory behind those that are sparse. So they are asked for only where the blocks of late were filled. These are the
//! blocks that were freed, and those that were full by the time that the next was asked for.
//!
//! So it is with the heap: what it grows by asks for huge pages if its last pageblocks were filled.

use crate::base::time::Nanos;
use crate::base::units::Pages;

/// Blocks that must have been filled of the last eight freed.
const FILLED_BLOCKS: u32 = 7;
/// Or blocks one after another that were full by the time that the next was asked for.
const FILLED_AT_ONCE: u8 = 3;
/// One block in so many goes without huge pages although they pay: behind huge pages nothing can be learnt.
const PROBE: u32 = 16;

/// Pageblocks that a growing heap looks back at.
pub(crate) const LOOKED_AT: u32 = 8;
/// Pageblocks from which on a heap learns of its growth. One of 32 MiB keeps the peak within a few percent: as it ends to
/// grow, a huge page or two are not filled.
pub(crate) const LEARNS_FROM: u32 = 16;

/// A first touch of a huge page that takes longer costs as much as those of its pages would (512 of about 2 us).
pub(crate) const SLOW: Nanos = Nanos(1_000_000);
/// A slow touch is paid for by a pause of so many times that: at most 0.1 % of a CPU.
pub(crate) const PAUSE: u64 = 1000;

/// Whether a pageblock of which `pages` are in use, or resident, is as good as full.
pub(crate) fn is_filled(pages: Pages) -> bool {
    pages >= Pages::BLOCK - Pages::BLOCK / 8
}

/// Whether a heap of `pageblocks` grows dense, of the last [`LOOKED_AT`] of which `filled` were filled.
pub(crate) fn grows_dense(pageblocks: u32, filled: impl FnOnce() -> usize) -> bool {
    pageblocks >= LEARNS_FROM && filled() >= FILLED_BLOCKS as usize
}

/// Notes on the last eight blocks freed, of those in use, and of how many.
#[derive(Debug, Default)]
pub struct Density {
    /// Bit i: the block freed i observations ago was filled.
    history: u8,
    /// Blocks one after another that were filled before the next was handed out.
    at_once: u8,
    handed_out: u32,
}

impl Density {
    /// Nothing seen: no huge pages yet.
    pub(crate) const fn new() -> Self {
        Self { history: 0, at_once: 0, handed_out: 0 }
    }

    /// A block without huge pages was freed; `filled` is what a look at it found.
    pub(crate) fn observe(&mut self, filled: bool) {
        self.history = self.history << 1 | u8::from(filled);
        if !filled {
            self.at_once = 0;
        }
    }

    /// The block handed out last, without huge pages, was looked at as the next is wanted.
    pub(crate) fn observe_in_use(&mut self, filled: bool) {
        self.at_once = if filled { self.at_once.saturating_add(1) } else { 0 };
    }

    /// Whether huge pages pay.
    pub(crate) fn pays(&self) -> bool {
        self.history.count_ones() >= FILLED_BLOCKS || self.at_once >= FILLED_AT_ONCE
    }

    /// Whether the next block should have huge pages.
    pub(crate) fn wants_huge(&mut self) -> bool {
        self.handed_out = self.handed_out.wrapping_add(1);
        self.pays() && !self.handed_out.is_multiple_of(PROBE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_follow_filled_blocks_and_end_with_sparse_ones() {
        let mut density = Density::new();
        assert!(!density.wants_huge());
        (0..8).for_each(|_| density.observe(true));
        let huge = (0..PROBE).filter(|_| density.wants_huge()).count();
        assert_eq!(huge, PROBE as usize - 1, "all but the probe");
        density.observe(false);
        assert!((0..4).any(|_| density.wants_huge()), "one sparse block is no reason");
        density.observe(false);
        assert!((0..32).all(|_| !density.wants_huge()));
    }

    #[test]
    fn blocks_in_use_count_as_long_as_all_of_them_are_filled() {
        let mut density = Density::new();
        (0..FILLED_AT_ONCE).for_each(|_| density.observe_in_use(true));
        assert!(density.wants_huge());
        density.observe_in_use(false);
        assert!(!density.wants_huge());
        (0..FILLED_AT_ONCE).for_each(|_| density.observe_in_use(true));
        assert!(density.wants_huge());
        density.observe(false);
        assert!(!density.wants_huge(), "one freed that was sparse");
    }
}
