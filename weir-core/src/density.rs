//! Whether programs touch the whole of their large blocks: huge pages pay behind those that are filled, and cost memory
//! behind those that are sparse, so they are asked for only where the blocks of late were filled: those that were freed,
//! and those that were full by the time that the next was asked for.

use crate::page::{PAGE, PAGEBLOCK, PAGEBLOCK_PAGES};
use crate::platform::{Platform, Run};

/// Pageblocks of a block that are looked at, where it is touched all over or nowhere.
const SAMPLES: usize = 4;
/// Of a touched pageblock's pages, those that must be resident for it to count as filled: seven eighths.
const FILLED: usize = PAGEBLOCK_PAGES / 8 * 7;
/// Of the last eight blocks freed, those that must have been filled.
const FILLED_BLOCKS: u32 = 7;
/// Or blocks one after another that were full by the time that the next was asked for.
const FILLED_AT_ONCE: u8 = 3;
/// One block in so many goes without huge pages although they pay: behind huge pages nothing can be learnt.
const PROBE: u32 = 16;

/// What was seen of the last eight blocks freed, of those in use, and of how many.
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
    pub const fn new() -> Self {
        Self { history: 0, at_once: 0, handed_out: 0 }
    }

    /// A block without huge pages was freed; `filled` is what [`look`] said of it.
    pub fn observe(&mut self, filled: bool) {
        self.history = self.history << 1 | u8::from(filled);
        if !filled {
            self.at_once = 0;
        }
    }

    /// The block handed out last, without huge pages, was looked at as the next is wanted.
    pub fn observe_in_use(&mut self, filled: bool) {
        self.at_once = if filled { self.at_once.saturating_add(1) } else { 0 };
    }

    /// Whether huge pages pay.
    pub fn pays(&self) -> bool {
        self.history.count_ones() >= FILLED_BLOCKS || self.at_once >= FILLED_AT_ONCE
    }

    /// Whether the next block should have huge pages.
    pub fn wants_huge(&mut self) -> bool {
        self.handed_out = self.handed_out.wrapping_add(1);
        self.pays() && !self.handed_out.is_multiple_of(PROBE)
    }
}

/// What a few pageblocks of a block tell of all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Bytes resident.
    pub resident: usize,
    /// Some of it was touched, and those pageblocks that were are filled.
    pub filled: bool,
}

/// Looks at a few pageblocks of `block`, each once; `None` where the platform cannot say. What lies between two of them
/// is taken to be as they are. Where one was touched and the other was not, the border is searched for: a buffer that
/// grows is touched up to somewhere.
pub fn look<P: Platform>(platform: &P, block: Run) -> Option<Look> {
    let pages_at = |i: usize| platform.resident(Run { addr: block.addr + i * PAGEBLOCK, len: PAGEBLOCK });
    // A block may be here for its alignment alone.
    let last = (block.len / PAGEBLOCK).checked_sub(1)?;
    let (mut at, mut pages) = (0, pages_at(0)?);
    let (mut resident, mut touched, mut filled) = (pages, usize::from(pages > 0), usize::from(pages >= FILLED));
    for sample in 1..SAMPLES {
        let next = last * sample / (SAMPLES - 1);
        if next == at {
            continue;
        }
        let there = pages_at(next)?;
        resident += if (pages > 0) == (there > 0) {
            (next - at) * (pages + there) / 2
        } else {
            let (mut low, mut high) = (at, next);
            while high - low > 1 {
                let middle = low.midpoint(high);
                let is_like_low = (pages_at(middle)? > 0) == (pages > 0);
                *(if is_like_low { &mut low } else { &mut high }) = middle;
            }
            (low - at) * pages + (next - low) * there
        };
        touched += usize::from(there > 0);
        filled += usize::from(there >= FILLED);
        (at, pages) = (next, there);
    }
    // What is behind the last whole pageblock is as that one.
    let rest = block.len % PAGEBLOCK / PAGE * pages / PAGEBLOCK_PAGES;
    Some(Look { resident: (resident + rest) * PAGE, filled: touched > 0 && filled == touched })
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
