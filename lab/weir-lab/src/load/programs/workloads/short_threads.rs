//! Threads that come, allocate a little and go: what an allocator keeps of each adds up.

use crate::base::prelude::*;

const BLOCKS: usize = 400;

/// Thread after thread; every second block is freed by its thread, the rest by whoever started it. Counts blocks.
pub fn work(run: &Run) -> u64 {
    let threads = run.scaled(4_000);
    for number in 0..threads {
        let left = std::thread::spawn(move || {
            let mut random = Random::new(number, 0);
            let blocks: Vec<Block> = (0..BLOCKS).map(|_| Block::new(random.doublings(4, 13))).collect();
            blocks.iter().step_by(2).for_each(|block| block.free());
            blocks
        });
        let blocks = left.join().unwrap_or_default();
        blocks.into_iter().skip(1).step_by(2).for_each(Block::free);
    }
    threads * BLOCKS as u64
}
