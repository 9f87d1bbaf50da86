//! Berger's cache-scratch and cache-thrash: does the allocator put blocks of different threads on one cache line? It
//! may do so because it was handed them by another (scratch, passive) or of its own accord (thrash, active).

use crate::base::prelude::*;

const SIZE: usize = 8;
const WRITES: u64 = 200;
const BLOCKS: u64 = 5_000_000;

/// Each thread first frees a block that the main thread allocated; the blocks beside it on the cache line are freed by
/// the other threads.
pub fn scratch(run: &Run) -> u64 {
    let handed: Vec<Block> = (0..run.threads).map(|_| Block::new(SIZE)).collect();
    run.on_threads(|index| {
        handed[index].free();
        write_blocks(run)
    })
}

/// Each thread has blocks of its own from the first.
pub fn thrash(run: &Run) -> u64 {
    run.on_threads(|_| write_blocks(run))
}

/// Does the same work for each number of threads in all, so that one and N compare.
fn write_blocks(run: &Run) -> u64 {
    let blocks = run.scaled(BLOCKS) / run.threads as u64;
    for _ in 0..blocks {
        let block = Block::new(SIZE);
        for value in 0..WRITES {
            block.set_word(0, value);
            black_box(block.word(0));
        }
        block.free();
    }
    blocks
}
