//! Blocks in use that were handed out without memory behind all of them: how much of them has not been touched since,
//! as far as is known. What is not resident is in no peak.

use crate::blocks::block::Block;

/// Blocks known at most. Of a program that holds more, each free of one that is not known costs a look at all of its pages.
const KNOWN: usize = 64;

/// A block in use.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untouched {
    /// The block.
    pub block: Block,
    /// Bytes of it without memory behind them when it was last looked at.
    pub bytes: usize,
    /// Bytes at its end that were new when it was handed out, and so zero.
    pub fresh: usize,
    /// It was looked at as the next block was wanted.
    pub seen: bool,
}

/// The blocks, the oldest first. Of one that is not here everything counts as touched.
#[derive(Debug)]
pub struct UntouchedBlocks {
    known: [Untouched; KNOWN],
    count: usize,
    /// Sum of their untouched bytes.
    pub bytes: usize,
    /// When all of them were last looked at, ns.
    pub looked_at: u64,
}

impl UntouchedBlocks {
    /// None.
    #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
    pub const fn new() -> Self {
        let none = Untouched { block: Block::NONE, bytes: 0, fresh: 0, seen: false };
        Self { known: [none; KNOWN], count: 0, bytes: 0, looked_at: 0 }
    }

    /// A block was handed out, `bytes` of it without memory behind them, the last `fresh` of which are new. Where too many are known, that one is forgotten
    /// of which least is untouched.
    pub fn add(&mut self, block: Block, bytes: usize, fresh: usize) {
        if bytes == 0 {
            return;
        }
        if self.count == KNOWN {
            let least = (0..KNOWN).min_by_key(|&i| self.known[i].bytes).unwrap_or(0);
            self.take(least);
        }
        self.known[self.count] = Untouched { block, bytes, fresh, seen: false };
        self.count += 1;
        self.bytes += bytes;
    }

    /// The block at `addr` is no longer in use, or elsewhere; how much of it was untouched.
    pub fn remove(&mut self, addr: usize) -> usize {
        self.position(addr).map_or(0, |i| self.take(i))
    }

    /// A look at the block found `bytes` untouched.
    pub fn set(&mut self, block: Block, bytes: usize) {
        if let Some(i) = self.position(block.run.addr).filter(|&i| self.known[i].block == block) {
            self.bytes = self.bytes - self.known[i].bytes + bytes;
            self.known[i].bytes = bytes;
            if bytes == 0 {
                self.take(i);
            }
        }
    }

    /// The block that was handed out last, if it was not looked at since; it counts as looked at from now on.
    pub fn see_newest(&mut self) -> Option<Block> {
        let newest = self.known[..self.count].last_mut()?;
        (!core::mem::replace(&mut newest.seen, true)).then_some(newest.block)
    }

    /// The blocks that cannot be told to be as they were, the youngest first; how many there are.
    pub fn doubtful(&self, surprises: u8) -> ([Block; KNOWN], usize) {
        let (mut out, mut count) = ([Block::NONE; KNOWN], 0);
        let youngest_first = self.known[..self.count].iter().rev().map(|known| known.block);
        for block in youngest_first.filter(|block| !block.constancy.is_sure(surprises)) {
            out[count] = block;
            count += 1;
        }
        (out, count)
    }

    /// How much of the block at `addr` is untouched, and how much of its end was new when it was handed out.
    pub fn of(&self, addr: usize) -> (usize, usize) {
        self.position(addr).map_or((0, 0), |i| (self.known[i].bytes, self.known[i].fresh))
    }

    fn position(&self, addr: usize) -> Option<usize> {
        (0..self.count).find(|&i| self.known[i].block.run.addr == addr)
    }

    fn take(&mut self, i: usize) -> usize {
        let bytes = self.known[i].bytes;
        self.known.copy_within(i + 1..self.count, i);
        self.count -= 1;
        self.bytes -= bytes;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::run::Run;

    fn block(i: usize) -> Block {
        Block { run: Run { addr: i << 24, len: 1 << 24 }, ..Block::NONE }
    }

    #[test]
    fn the_sum_is_of_those_that_are_known() {
        let mut untouched = UntouchedBlocks::new();
        (1..=KNOWN).for_each(|i| untouched.add(block(i), i, 0));
        assert_eq!(untouched.bytes, KNOWN * (KNOWN + 1) / 2);
        untouched.add(block(100), 7, 0);
        assert_eq!((untouched.of(block(1).run.addr).0, untouched.bytes), (0, KNOWN * (KNOWN + 1) / 2 - 1 + 7));
        untouched.set(block(100), 3);
        assert_eq!(untouched.see_newest(), Some(block(100)));
        assert_eq!(untouched.see_newest(), None);
        untouched.set(block(100), 0);
        assert_eq!((untouched.remove(block(100).run.addr), untouched.remove(block(5).run.addr)), (0, 5));
        for i in 1..=KNOWN {
            untouched.remove(block(i).run.addr);
        }
        assert_eq!((untouched.bytes, untouched.count), (0, 0));
    }
}
