//! Which addresses are surely not sampled: read by each free of a run, without the lock.
//!
//! A count for each hash of an address, of the sampled blocks that have it. It is changed under the recorder's lock alone: up
//! before the block is handed out, down as it is freed.
//!
//! A free that reads 0 has a block that is not sampled. The bad interleaving would be a free of a sampled block that reads the 0
//! of before the block was counted. The block's address came to the freeing thread after the count went up. The program itself
//! orders that, as it hands memory from one thread to another. Without such an order, the block's content would be a data race
//! too. So the count that this block raised happens before the free, and a load never gives a value older than one that happens
//! before it. Every later value has this block in it, as only its own free takes it out. The words are `Relaxed`, as they say
//! nothing of other memory: the table behind the lock is read under the lock.

use core::sync::atomic::Ordering::Relaxed;

use super::layout::COUNTS;
use crate::platform::sync::AtomicU32;

/// The counts. All 0: nothing is sampled.
pub(super) struct Filter([AtomicU32; COUNTS]);

impl Filter {
    fn count(&self, block: usize) -> &AtomicU32 {
        // Most blocks begin at pages. The factor is 2^64 over the golden ratio.
        let product = (block as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(product >> 32) as usize % COUNTS]
    }

    /// Whether the block may be sampled.
    pub(super) fn may_have(&self, block: usize) -> bool {
        self.count(block).load(Relaxed) != 0
    }

    /// Under the lock: the block is sampled now.
    pub(super) fn add(&self, block: usize) {
        let count = self.count(block);
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    /// Under the lock: it is no more.
    pub(super) fn remove(&self, block: usize) {
        let count = self.count(block);
        count.store(count.load(Relaxed) - 1, Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::boxed::Box;

    #[test]
    fn a_block_that_is_in_it_is_never_denied() {
        let filter: Box<Filter> = Box::new(Filter([const { AtomicU32::new(0) }; COUNTS]));
        let blocks = |of: usize| (0..1000).map(move |at| (at * 7 + of) * 4096);
        blocks(0).for_each(|block| filter.add(block));
        assert!(blocks(0).all(|block| filter.may_have(block)));
        let wrong = blocks(1).filter(|&block| filter.may_have(block)).count();
        assert!(wrong < 100, "{wrong} of 1000");
        blocks(0).step_by(2).for_each(|block| filter.remove(block));
        assert!(blocks(0).skip(1).step_by(2).all(|block| filter.may_have(block)));
        blocks(0).skip(1).step_by(2).for_each(|block| filter.remove(block));
        assert!(filter.0.iter().all(|count| count.load(Relaxed) == 0));
    }
}
