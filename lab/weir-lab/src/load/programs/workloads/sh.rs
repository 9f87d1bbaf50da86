//! The MicroQuill SmartHeap tests, from their descriptions. In sh6bench whole batches are freed, half in the order
//! of their allocation and half against it. In sh8bench other threads do part of the freeing.

use crate::base::prelude::*;
use std::sync::Mutex;

const BATCH: usize = 2_000;
const LARGEST: usize = 1_000;

/// Small sizes are more frequent: the smaller of two even draws, twice.
fn size(random: &mut Random) -> usize {
    let draw = |random: &mut Random| random.between(1, LARGEST);
    draw(random).min(draw(random)).min(draw(random))
}

fn fill(batch: &mut [Block], random: &mut Random) {
    for slot in batch {
        *slot = Block::new(size(random));
    }
}

/// Frees the even places forwards, then the odd ones backwards.
fn free_both_ways(batch: &[Block]) {
    for block in batch.iter().step_by(2) {
        block.free();
    }
    for block in batch.iter().skip(1).step_by(2).rev() {
        block.free();
    }
}

/// Batches that never leave their thread.
pub fn sh6(run: &Run) -> u64 {
    let batches = run.scaled(4_000);
    run.on_threads(|index| {
        let mut random = Random::new(run.seed, index);
        let mut older = vec![Block::NONE; BATCH];
        let mut newer = vec![Block::NONE; BATCH];
        for _ in 0..batches {
            fill(&mut newer, &mut random);
            // One batch stays alive while the next is made, as the original keeps a window of them.
            free_both_ways(&older);
            std::mem::swap(&mut older, &mut newer);
        }
        free_both_ways(&older);
        batches * BATCH as u64
    })
}

/// Batches of which every second half is left for the next thread to free.
pub fn sh8(run: &Run) -> u64 {
    let batches = run.scaled(4_000);
    let left: Vec<Mutex<Vec<Block>>> = (0..run.threads).map(|_| Mutex::new(vec![Block::NONE; BATCH / 2])).collect();
    let done = run.on_threads(|index| {
        let mut random = Random::new(run.seed, index);
        let mut batch = vec![Block::NONE; BATCH];
        for _ in 0..batches {
            fill(&mut batch, &mut random);
            let (own, others) = batch.split_at_mut(BATCH / 2);
            free_both_ways(own);
            // What lies there comes from a neighbour, or from oneself a turn ago: whoever finds it frees it.
            others.swap_with_slice(&mut left[(index + 1) % left.len()].lock().unwrap());
            free_both_ways(others);
        }
        batches * BATCH as u64
    });
    for slot in left {
        free_both_ways(&slot.into_inner().unwrap());
    }
    done
}
