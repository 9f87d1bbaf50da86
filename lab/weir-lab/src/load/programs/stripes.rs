//! E6's program for huge pages: fills memory with blocks in a row, frees every second stripe of them, and goes idle.
//!
//! `stripes bytes=N block=N stripe=N`, and the protocol of `neighbour`: a line after each phase, then it waits.

use crate::base::args::read_numbers;
use crate::base::mem::Block;
use crate::programs::neighbour::{listen, say};

/// Runs it.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut bytes, mut block, mut stripe) = (256usize << 20, 64usize << 10, 8usize << 20);
    read_numbers(args, "bytes, block, stripe", |key, number| {
        match key {
            "bytes" => bytes = number as usize,
            "block" => block = number.max(1) as usize,
            "stripe" => stripe = number.max(1) as usize,
            _ => return false,
        }
        true
    })?;
    let mut blocks = vec![Block::NONE; bytes / block];
    for slot in &mut blocks {
        *slot = Block::new(block);
        slot.fill(block);
    }
    say(format_args!("{{\"phase\":\"peak\",\"bytes\":{bytes}}}\n"));
    listen();
    let mut freed = 0;
    for (place, slot) in blocks.iter().enumerate() {
        if (place * block / stripe).is_multiple_of(2) {
            slot.free();
            freed += block;
        }
    }
    say(format_args!("{{\"phase\":\"freed\",\"freed\":{freed}}}\n"));
    listen();
    // SAFETY: ends the process at once, with no destructor of a block that is still there.
    unsafe { libc::_exit(0) }
}
