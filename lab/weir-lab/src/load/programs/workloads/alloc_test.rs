//! Ignatchenko's alloc-test: slots chosen at random are filled or emptied. Sizes follow a Pareto law, so most are
//! small. Each block is written when made and read when freed, so that placement counts too.

use crate::base::prelude::*;

const SLOTS: usize = 1 << 17;
const STEPS: u64 = 8_000_000;
const LARGEST: usize = 1_000;

/// Counts steps, an allocation or a free each.
pub fn work(run: &Run) -> u64 {
    let steps = run.scaled(STEPS) / run.threads as u64;
    run.on_threads(|index| {
        let mut random = Random::new(run.seed, index);
        let mut slots = vec![(Block::NONE, 0u32); SLOTS / run.threads];
        for _ in 0..steps {
            let place = random.below(slots.len());
            step(&mut slots[place], &mut random);
        }
        slots.into_iter().for_each(|(block, _)| block.free());
        steps
    })
}

fn step(slot: &mut (Block, u32), random: &mut Random) {
    let (block, size) = *slot;
    if block.is_none() {
        let size = pareto(random);
        let new = Block::new(size);
        new.fill(size);
        *slot = (new, size as u32);
        return;
    }
    let sum = (0..size as usize / 8).fold(0, |sum: u64, word| sum.wrapping_add(block.word(word)));
    black_box(sum);
    block.free();
    *slot = (Block::NONE, 0);
}

/// Pareto with shape 1 from 8 B up: half below 16 B, a quarter from 16 to 32 B, and so on, cut at [`LARGEST`].
fn pareto(random: &mut Random) -> usize {
    (8 * 4_096 / random.between(1, 4_096)).min(LARGEST)
}
