//! A block mapped on its own, and a freed one that is retained.

use super::constancy::Constancy;
use crate::base::run::Run;

/// A block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Where it is.
    pub run: Run,
    /// Huge pages were asked for.
    pub huge: bool,
    /// It was cut off the block before it, to which it is joined again once both are kept.
    pub is_rest: bool,
    /// All of it had memory behind it when it was handed out.
    pub is_touched: bool,
    /// What looks at it found of late.
    pub constancy: Constancy,
    /// In use: bytes of it without memory behind them when it was last looked at. One of which nothing was untouched then
    /// counts as touched.
    pub untouched: usize,
    /// In use: bytes at its end that were new when it was handed out, and so zero.
    pub fresh: usize,
}

impl Block {
    /// No block.
    pub const NONE: Self = Self {
        run: Run { addr: 0, len: 0 },
        huge: false,
        is_rest: false,
        is_touched: false,
        constancy: Constancy::NONE,
        untouched: 0,
        fresh: 0,
    };

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
    /// Bytes of it that have memory behind them.
    pub resident: usize,
}
