//! Two of glibc's own benchmarks, from their descriptions: bench-malloc-simple and bench-malloc-thread.

use crate::base::counted::stay_on_this_cpu;
use crate::base::prelude::*;

const SIZES: [usize; 6] = [16, 64, 128, 512, 1_024, 4_096];
const COUNTS: [usize; 3] = [25, 100, 400];

/// For each size: runs of 25, 100 and 400 blocks allocated, then freed in that order. Counts blocks.
pub fn simple(run: &Run) -> u64 {
    let blocks_each = run.scaled(1_600_000) as usize;
    let mut slots = [Block::NONE; 400];
    let mut done = 0;
    for size in SIZES {
        for count in COUNTS {
            for _ in 0..blocks_each / count {
                slots[..count].iter_mut().for_each(|slot| *slot = Block::new(size));
                slots[..count].iter().for_each(|slot| slot.free());
                done += count as u64;
            }
        }
    }
    done
}

/// 1,024 slots a thread, replaced at random; sizes of 4 B to 32 KiB with a likelihood that falls as they grow, by
/// doublings here. Counts blocks.
pub fn thread(run: &Run) -> u64 {
    let steps = run.scaled(20_000_000) / run.threads as u64;
    run.on_threads(|index| {
        let mut random = Random::new(run.seed, index);
        let mut slots = [Block::NONE; 1_024];
        for _ in 0..steps {
            let place = random.below(slots.len());
            slots[place].free();
            slots[place] = Block::new(random.doublings(2, 15));
        }
        slots.iter().for_each(|block| block.free());
        steps
    })
}

/// The least there is: a malloc and the free of it, on one CPU, nothing else.
pub fn pair64(run: &Run) -> u64 {
    stay_on_this_cpu();
    let pairs = run.scaled(100_000_000);
    (0..pairs).for_each(|_| Block::new(64).free());
    pairs
}
