//! mimalloc's stress test, from its description: rounds of new threads. Each has blocks that live for a moment,
//! blocks that live to the round's end, and blocks swapped with others through shared slots.

use crate::base::prelude::*;
use std::sync::atomic::{AtomicPtr, Ordering};

const SHARED_SLOTS: usize = 1_000;
const ROUNDS: u64 = 50;
const BLOCKS: u64 = 50_000;

/// Every round's threads are new. Counts blocks allocated.
pub fn work(run: &Run) -> u64 {
    let shared: Vec<AtomicPtr<u8>> = (0..SHARED_SLOTS).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
    let rounds = run.scaled(ROUNDS);
    let mut done = 0;
    for round in 0..rounds {
        done += run.on_threads(|index| thread(&shared, &mut Random::new(run.seed + round, index)));
        // At each tenth round everything in the slots goes, so that the live set falls and rises.
        if round % 10 == 9 {
            empty(&shared);
        }
    }
    empty(&shared);
    done
}

fn empty(shared: &[AtomicPtr<u8>]) {
    for slot in shared {
        Block::from_address(slot.swap(std::ptr::null_mut(), Ordering::AcqRel)).free();
    }
}

/// Mostly small, one in a hundred to 4 KiB, one in ten thousand to 512 KiB.
fn block(random: &mut Random) -> Block {
    let size = match random.below(10_000) {
        0 => random.doublings(12, 19),
        1..=99 => random.doublings(8, 12),
        _ => random.doublings(3, 8),
    };
    Block::zeroed(size)
}

fn thread(shared: &[AtomicPtr<u8>], random: &mut Random) -> u64 {
    let mut moment = vec![Block::NONE; 512];
    let mut kept = Vec::with_capacity(BLOCKS as usize / 2);
    for step in 0..BLOCKS {
        let new = block(random);
        match random.below(4) {
            0 | 1 => {
                let place = random.below(moment.len());
                std::mem::replace(&mut moment[place], new).free();
            }
            2 if kept.len() < kept.capacity() => kept.push(new),
            _ => {
                let slot = &shared[random.below(shared.len())];
                Block::from_address(slot.swap(new.address(), Ordering::AcqRel)).free();
            }
        }
        if step % 8 == 0 && !kept.is_empty() {
            kept.swap_remove(random.below(kept.len())).free();
        }
    }
    moment.into_iter().chain(kept).for_each(Block::free);
    BLOCKS
}
