//! What a call costs while much is live.

use crate::base::mem::{Block, Random};
use crate::base::run::Run;
use std::time::{Duration, Instant};

/// Between two looks at the clock.
const STEPS: u64 = 1_024;

/// `big-heap MIB MS`: makes so much live in blocks of 16 B to 64 KiB (every doubling as likely, each page touched),
/// then replaces blocks at random for so long.
pub fn main(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let mut number = || args.next().and_then(|word| word.parse::<u64>().ok()).ok_or("big-heap MIB MS");
    let (mib, ms) = (number()?, number()?);
    let mut random = Random::new(Run::default().seed, 0);
    let fill = Instant::now();
    let mut blocks = Vec::new();
    let mut live = 0;
    while live < mib << 20 {
        let size = random.doublings(4, 16);
        blocks.push(block(size));
        live += size as u64;
    }
    let fill_ns = fill.elapsed().as_nanos() / blocks.len() as u128;
    let (start, mut ops) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(ms) {
        for _ in 0..STEPS {
            let place = random.below(blocks.len());
            blocks[place].free();
            blocks[place] = block(random.doublings(4, 16));
        }
        ops += STEPS;
    }
    let ns = start.elapsed().as_nanos();
    println!("{{\"ops\":{ops},\"ns\":{ns},\"blocks\":{},\"fill_ns\":{fill_ns}}}", blocks.len());
    // SAFETY: ends the process at once: freeing so much is no part of the measurement.
    unsafe { libc::_exit(0) }
}

fn block(size: usize) -> Block {
    let block = Block::new(size);
    block.touch_pages(size);
    block
}
