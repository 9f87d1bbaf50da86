//! Blocks of whole pages that come and go: what an allocator gives back to the kernel it has to fault in again.

use crate::base::prelude::*;

const MIB: usize = 1 << 20;

/// 20 live blocks of 5 to 25 MiB, one replaced at a time. Counts blocks.
pub fn large(run: &Run) -> u64 {
    let steps = run.scaled(200);
    let mut random = Random::new(run.seed, 0);
    replace(&mut [Block::NONE; 20], steps, &mut random, |random| random.between(5 * MIB, 25 * MIB));
    steps
}

/// 256 live blocks on all threads together, of 4 KiB to 1 MiB, every doubling as likely. Counts blocks.
pub fn pages(run: &Run) -> u64 {
    let steps = run.scaled(40_000) / run.threads as u64;
    run.on_threads(|index| {
        let mut random = Random::new(run.seed, index);
        let mut slots = vec![Block::NONE; 256 / run.threads];
        replace(&mut slots, steps, &mut random, |random| random.doublings(12, 20));
        steps
    })
}

fn replace(slots: &mut [Block], steps: u64, random: &mut Random, size: impl Fn(&mut Random) -> usize) {
    for _ in 0..steps {
        let place = random.below(slots.len());
        slots[place].free();
        let bytes = size(random);
        slots[place] = Block::new(bytes);
        slots[place].touch_pages(bytes);
    }
    slots.iter().for_each(|block| block.free());
}
