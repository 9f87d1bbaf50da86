//! Lists of a zone. Pageblocks are listed by the largest block that is free in each, and by the largest that is idle
//! (free and backed). For the reporter they are listed by what a report of their idle pages costs.

use crate::base::units::{BlockNo, MAX_ORDER, PAGEBLOCK_PAGES, Pages};
use crate::pages::request::Purpose;

/// Steps of fullness told apart among pageblocks that are neither full nor empty.
pub(super) const FILLS: usize = 8;
/// Whole free pageblocks: with memory that the system refused to take, with memory behind them, and without. The last
/// level has none behind what describes them either (see `bare`).
pub(super) const WHOLE_REFUSED: usize = 2 * FILLS;
pub(super) const WHOLE_BACKED: usize = WHOLE_REFUSED + 1;
pub(super) const WHOLE_REPORTED: usize = WHOLE_REFUSED + 2;
pub(super) const WHOLE_BARE: usize = WHOLE_REFUSED + 3;
/// Levels: steps of fullness of runs' pageblocks, of slabs', and the whole free ones.
pub(super) const LEVELS: usize = WHOLE_REFUSED + 4;
/// Orders that a pageblock may have a block of: 0 to 9.
pub(super) const ORDERS: usize = MAX_ORDER as usize - 1;
/// The hint list, beside those of each [`Backing`](crate::base::backing::Backing), of pageblocks whose release was refused.
pub(super) const HINT_REFUSED: usize = 3;

/// Keys that a pageblock is listed by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Largest free block.
    Free = 0,
    /// Largest idle block.
    Idle = 1,
}

/// Lists of pageblocks by level and order.
pub(super) struct Lists {
    pub(super) heads: [[BlockNo; ORDERS]; LEVELS],
    /// Bit `order` of `some[level]`: that list is not empty.
    pub(super) some: [u16; LEVELS],
}

impl Lists {
    pub(super) const fn new() -> Self {
        Self { heads: [[BlockNo::NONE; ORDERS]; LEVELS], some: [0; LEVELS] }
    }

    /// The largest order that one of the pageblocks has a block of; two whole ones may be one of order 10.
    pub(super) fn largest(&self) -> Option<u32> {
        let of = |orders: &u16| u16::BITS - orders.leading_zeros();
        let largest = self.some.iter().map(of).max().unwrap_or(0);
        let has_whole = self.some[WHOLE_REFUSED..].iter().any(|&orders| orders != 0);
        if has_whole { Some(MAX_ORDER - 1) } else { largest.checked_sub(1) }
    }

    /// A pageblock of one of `levels` with a block of at least `order`, of the smallest such order; the levels in turn.
    pub(super) fn find(&self, mut levels: impl Iterator<Item = usize>, order: u32) -> Option<BlockNo> {
        levels.find_map(|level| {
            let orders = self.some[level] >> order;
            (orders != 0).then(|| self.heads[level][(order + orders.trailing_zeros()) as usize])
        })
    }
}

/// The levels of `purpose` at which a pageblock may have `pages` (at most 512) free pages, the fullest first.
pub(super) fn levels(purpose: Purpose, pages: Pages) -> impl Iterator<Item = usize> {
    let (first, fullest) = (purpose as usize * FILLS, (PAGEBLOCK_PAGES - pages.0) * FILLS / PAGEBLOCK_PAGES);
    (first..=first + fullest).rev()
}

const _: () = assert!(LEVELS * ORDERS < u8::MAX as usize);
