//! A block of which every byte is known, and what is done where one is wrong.

use crate::base::prelude::*;

#[cold]
pub fn corrupt(what: &str) -> ! {
    eprintln!("corrupt: {what}");
    std::process::abort()
}

/// A block of which every byte is known: it follows from the seed and the place.
#[derive(Clone, Copy)]
pub struct FilledBlock {
    pub block: Block,
    pub len: usize,
    pub seed: u64,
}

impl FilledBlock {
    pub fn of(random: &mut Random, len: usize) -> FilledBlock {
        let seed = random.next();
        let block = if seed.is_multiple_of(8) { Block::zeroed(len) } else { Block::new(len) };
        let mut filled = FilledBlock { block, len, seed };
        // The first byte is written by whatever makes a block.
        if seed.is_multiple_of(8) && filled.bytes()[1..].iter().any(|&byte| byte != 0) {
            corrupt("a block of calloc is not zero");
        }
        filled.fill(0);
        filled
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the block is as long, and of this thread alone.
        unsafe { std::slice::from_raw_parts_mut(self.block.address(), self.len) }
    }

    /// Other contents.
    pub fn change(&mut self, random: &mut Random) {
        self.seed = random.next();
        self.fill(0);
    }

    pub fn fill(&mut self, from: usize) {
        let first = self.seed.wrapping_add(from as u64);
        self.bytes()[from..].iter_mut().zip(first..).for_each(|(byte, at)| *byte = (at ^ at >> 7) as u8);
    }

    pub fn check(&self) {
        let (mut this, seed) = (*self, self.seed);
        if this.bytes().iter().zip(seed..).any(|(&byte, at)| byte != (at ^ at >> 7) as u8) {
            corrupt("a block does not hold what was written to it");
        }
    }

    pub fn resize(&mut self, len: usize) {
        let (kept, first) = (self.len.min(len), self.bytes()[0]);
        (self.block, self.len) = (self.block.resized(len), len);
        self.bytes()[0] = first; // `resized` writes the first byte.
        FilledBlock { len: kept, ..*self }.check();
        self.fill(kept);
    }

    pub fn free(self) {
        self.check();
        self.block.free();
    }
}
