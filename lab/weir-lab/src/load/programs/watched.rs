//! The busy program of `run watched`: phases of the same work, one at a byte of input, and the processor time of each.

use super::neighbour::{listen, say};
use crate::base::args::read_numbers;
use crate::base::clock::processor_ns;
use crate::base::mem::{Block, Random};

/// Blocks that are alive at any time: some 20 MiB.
const LIVE: usize = 20_000;

/// `watched steps=N`: a phase replaces so many random blocks of 16 B to 4 KiB.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let mut steps = 1_000_000;
    read_numbers(args, "steps", |key, number| {
        steps = number;
        key == "steps"
    })?;
    let mut random = Random::new(13, 0);
    let mut blocks = [Block::NONE; LIVE];
    loop {
        let begin = processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        for _ in 0..steps {
            let slot = &mut blocks[random.below(LIVE)];
            slot.free();
            *slot = Block::new(random.doublings(4, 12));
        }
        say(format_args!("{{\"cpu_ns\":{}}}\n", processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - begin));
        listen();
    }
}
