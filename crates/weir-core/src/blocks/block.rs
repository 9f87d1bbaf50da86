//! A block mapped on its own, a freed one that is retained, and what looks at a block found.

use super::lent::MOST_FREES;
use crate::base::run::Run;
use crate::base::units::Bytes;

/// A block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Where it is.
    pub run: Run,
    /// Huge pages were asked for.
    pub huge: bool,
    /// The block was cut off the one before it, and is joined to that again once both are kept.
    pub is_rest: bool,
    /// All of it had memory behind it when it was handed out.
    pub is_touched: bool,
    /// Findings of the last looks at the block.
    pub constancy: Constancy,
    /// In use: what of it had no memory behind it when it was last looked at. One of which nothing was untouched then
    /// counts as touched.
    pub untouched: Bytes,
    /// In use: bytes at its end that were new when it was handed out, and so zero.
    pub fresh: usize,
    /// In use: bytes at its beginning that its owner has asked for, and that were not released since. What follows is slack. Of a
    /// lent block they may be too few.
    pub asked: usize,
    /// In use: where it is lent to a CPU, if it is ([`CpuBlocks`](super::cpu_blocks::CpuBlocks)); else 0.
    pub home: u8,
}

impl Block {
    /// No block.
    pub const NONE: Self = Self {
        run: Run { addr: 0, len: 0 },
        huge: false,
        is_rest: false,
        is_touched: false,
        constancy: Constancy::NONE,
        untouched: Bytes::ZERO,
        fresh: 0,
        asked: 0,
        home: 0,
    };

    /// All of it.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.run.len)
    }

    /// In use: what of it was touched, and may be free on a CPU.
    pub(super) fn lent_bytes(&self) -> Bytes {
        if self.home == 0 { Bytes::ZERO } else { self.bytes() - self.untouched }
    }

    /// Whether this was cut off `block` or what followed it, and begins where it ends.
    pub(super) fn follows(&self, block: &Block) -> bool {
        self.is_rest && block.run.addr + block.run.len == self.run.addr && block.huge == self.huge
    }
}

/// A freed block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The block.
    pub block: Block,
    /// What of it has memory behind it.
    pub resident: Bytes,
}

// Whether it can be told without a look what of a block is resident. The blocks of most programs are touched, each time
// that they are handed out, as they were the time before.

/// A block that was found n times as it was expected is not looked at the next `2^(n - 1) - 1` times, for n up to this.
/// A look of a few us is then some ten ns a free.
const MOST_AGREED: u8 = 9;

/// Findings of the last looks at a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Constancy {
    /// Looks one after another that found what was expected.
    agreed: u8,
    /// The number of surprises, of all blocks, when the last of them was made.
    surprises: u8,
    /// Frees without a look since then.
    unlooked: u16,
}

impl Constancy {
    /// No look yet.
    pub const NONE: Self = Self { agreed: 0, surprises: 0, unlooked: 0 };

    /// Whether the block is as it was when it was looked at last, as far as can be told: no look is due. A surprise at
    /// any block is one at all.
    pub(crate) fn is_sure(self, surprises: u8) -> bool {
        self.agreed > 0 && self.surprises == surprises && self.unlooked < (1 << (self.agreed - 1)) - 1
    }

    /// Whether the last look found what was expected.
    pub(crate) fn has_agreed(self) -> bool {
        self.agreed > 0
    }

    /// Frees of the block for which that stays so.
    pub(crate) fn frees_unlooked(self, surprises: u8) -> u8 {
        let all = if self.is_sure(surprises) { (1 << (self.agreed - 1)) - 1 - self.unlooked } else { 0 };
        all.min(MOST_FREES.into()) as u8
    }

    /// The block was freed so many times, and not looked at.
    pub(crate) fn skip(&mut self, frees: u8) {
        self.unlooked = self.unlooked.saturating_add(frees.into());
    }

    /// The block is freed, and was looked at: it was as expected, or not. Whether that is a surprise.
    pub(crate) fn observe(&mut self, as_expected: bool, surprises: u8) -> bool {
        let is_surprise = !as_expected && self.agreed > 0;
        let before = if as_expected && self.surprises == surprises { self.agreed } else { 0 };
        let agreed = if as_expected { (before + 1).min(MOST_AGREED) } else { 0 };
        *self = Self { agreed, surprises, unlooked: 0 };
        is_surprise
    }
}

#[cfg(test)]
mod constancy_tests {
    use super::*;

    /// Looks among so many frees of a block that is always as it was.
    fn looks(constancy: &mut Constancy, frees: usize) -> usize {
        let mut looks = 0;
        for _ in 0..frees {
            if constancy.is_sure(0) {
                constancy.skip(1);
            } else {
                assert!(!constancy.observe(true, 0));
                looks += 1;
            }
        }
        looks
    }

    #[test]
    fn what_does_not_change_is_looked_at_ever_more_rarely() {
        let mut constancy = Constancy::default();
        let found = [1, 1, 2, 4, 100, 4096].map(|frees| looks(&mut constancy, frees));
        assert_eq!(found, [1, 1, 1, 1, 3, 17], "at frees 1, 2, 4 and so on to 256, then at each 256th");
    }

    #[test]
    fn a_surprise_ends_it() {
        let mut constancy = Constancy::default();
        looks(&mut constancy, 100);
        assert!(!constancy.is_sure(1), "another block surprised");
        assert!(constancy.observe(false, 0));
        assert!(!constancy.is_sure(0));
        assert!(!constancy.observe(false, 0), "nothing was expected any more");
        looks(&mut constancy, 2);
        assert!(constancy.is_sure(0));
    }
}
