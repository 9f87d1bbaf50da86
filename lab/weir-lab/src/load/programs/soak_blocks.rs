//! The soak's blocks, every byte of which is known and checked.

use crate::base::mem::{Block, Random};

/// A block with its length and the number that its contents follow from.
#[derive(Clone, Copy)]
pub struct FilledBlock {
    pub block: Block,
    pub len: usize,
    pub seed: u64,
}

impl FilledBlock {
    /// A block of a size as programs ask for: mostly small, now and then of several MiB.
    pub fn new(random: &mut Random) -> FilledBlock {
        let (len, seed) = (some_size(random), random.next());
        let zeroed = seed % 8 == 0;
        let block = if zeroed { Block::zeroed(len) } else { Block::new(len) };
        let mut filled = FilledBlock { block, len, seed };
        if zeroed {
            // The first byte was written, to show that it can be.
            let bytes = filled.bytes();
            check(bytes[1..].iter().all(|&byte| byte == 0), "a block of calloc is not zero");
        }
        filled.fill(0);
        filled
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the block has `len` initialised bytes (malloc or calloc), and a block has one holder, which is this thread.
        unsafe { std::slice::from_raw_parts(self.block.address(), self.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block has `len` writable bytes, and one holder: no other copy of this value is used meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.block.address(), self.len) }
    }

    /// Writes the contents from byte `from` on.
    pub fn fill(&mut self, from: usize) {
        let first = self.seed.wrapping_add(from as u64);
        self.bytes_mut()[from..].iter_mut().zip(first..).for_each(|(byte, at)| *byte = pattern(at));
    }

    pub fn check(&self) {
        let right = self.bytes().iter().zip(self.seed..).all(|(&byte, at)| byte == pattern(at));
        check(right, "a block does not hold what was written to it");
    }

    pub fn resize(&mut self, len: usize) {
        let kept = self.len.min(len);
        let first = self.bytes()[0];
        self.block = self.block.resized(len);
        self.len = len;
        // `resized` wrote there, to show that it can be.
        self.bytes_mut()[0] = first;
        FilledBlock { len: kept, ..*self }.check();
        self.fill(kept);
    }

    /// Checks it and frees it.
    pub fn free(self) {
        self.check();
        self.block.free();
    }
}

fn pattern(at: u64) -> u8 {
    (at ^ at >> 7) as u8
}

fn check(holds: bool, what: &str) {
    if !holds {
        corrupt(what);
    }
}

/// Ends the process, whichever of them it is, with the status that says why.
#[cold]
pub fn corrupt(what: &str) -> ! {
    eprintln!("corrupt: {what}");
    std::process::abort()
}

/// A size as programs ask for: mostly small, now and then of several MiB.
pub fn some_size(random: &mut Random) -> usize {
    match random.below(1000) {
        0 => random.between(4 << 20, 12 << 20),
        1..=10 => random.between(32 << 10, 2 << 20),
        11..=60 => random.between(1 << 10, 64 << 10),
        _ => random.between(1, 1 << 10),
    }
}
