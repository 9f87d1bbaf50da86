//! The program of `huge-pages`: a heap of blocks of one size that is filled, walked at random, freed and filled again.
//!
//! `huge-heap bytes=N block=N steps=N`, and the protocol of `neighbour`: a line after each phase, then it waits. What is
//! measured is the heap alone: the program keeps no table of its blocks, each has the address of the next in its first word.
//!
//! Times are processor time: of a fill and of the frees the process's, as an allocator may let a thread of its own do a part
//! of the work; of the walk the thread's.

use crate::base::args::read_numbers;
use crate::base::clock::processor_ns;
use crate::base::kernel_words::KernelWords;
use crate::base::mem::{Block, PAGE, Random};
use crate::programs::neighbour::{listen, say};
use std::hint::black_box;

/// Bytes of a line of the processor's caches (x86-64).
const LINE: usize = 64;
/// The walk comes by one line in so many, on average: four in a page, so that of 4 GiB 256 MiB are read, eight times the
/// third-level cache of the machine that this was written on.
const LINES_A_CELL: usize = 16;
/// The word of a block that has the address of the next block, and that of a line which has the address of the next line.
const NEXT_BLOCK: usize = 0;
const NEXT_CELL: usize = 1;
/// One block in so many stays.
const KEPT: usize = 4;

/// All blocks, in the order in which they were allocated.
struct Chain {
    first: Block,
    size: usize,
    count: usize,
}

/// Runs it.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut bytes, mut size, mut steps) = (512usize << 20, LINE, 1usize << 20);
    read_numbers(args, "bytes, block (64 or more), steps", |key, number| {
        match key {
            "bytes" => bytes = number as usize,
            "block" if number >= LINE as u64 => size = number as usize,
            "steps" => steps = number.max(1) as usize,
            _ => return false,
        }
        true
    })?;
    let count = (bytes / size).max(1);
    let pages = (count * size) as f64 / PAGE as f64;
    say(format_args!("{{\"phase\":\"start\"}}\n"));
    listen();
    let (chain, fill) = timed(|| Chain::fill(size, count));
    let step = chain.walk(steps)?;
    say(format_args!("{{\"phase\":\"first\",\"fill_ns\":{:.1},\"step_ns\":{step:.2}}}\n", fill / pages));
    listen();
    let ((), free) = timed(|| chain.free(|_| true));
    let (chain, fill) = timed(|| Chain::fill(size, count));
    let step = chain.walk(steps)?;
    say(format_args!(
        "{{\"phase\":\"second\",\"free_ns\":{:.1},\"fill_ns\":{:.1},\"step_ns\":{step:.2}}}\n",
        free / pages,
        fill / pages
    ));
    listen();
    let mut random = Random::new(3, 0);
    let mut live = 0;
    chain.free(|size| {
        let goes = random.below(KEPT) != 0;
        live += if goes { 0 } else { size };
        goes
    });
    say(format_args!("{{\"phase\":\"freed\",\"live\":{live}}}\n"));
    listen();
    // SAFETY: ends the process at once, with no destructor of a block that is still there.
    unsafe { libc::_exit(0) }
}

/// What `work` returns, and the process's processor time for it, ns.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let begin = processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    let result = work();
    (result, processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - begin)
}

impl Chain {
    /// Allocates the blocks, and writes each of them wholly.
    fn fill(size: usize, count: usize) -> Chain {
        let new = || {
            let block = Block::new(size);
            block.fill(size);
            block
        };
        let first = new();
        let mut last = first;
        for _ in 1..count {
            let block = new();
            last.set_word(NEXT_BLOCK, block.address() as u64);
            last = block;
        }
        last.set_word(NEXT_BLOCK, 0);
        Chain { first, size, count }
    }

    /// Goes over all blocks; `visit` may free the one it gets.
    fn each(&self, mut visit: impl FnMut(Block)) {
        let mut block = self.first;
        while !block.is_none() {
            let next = Block::from_address(block.word(NEXT_BLOCK) as *mut u8);
            visit(block);
            block = next;
        }
    }

    /// Frees the blocks for which `goes`, which gets the size, says so.
    fn free(self, mut goes: impl FnMut(usize) -> bool) {
        self.each(|block| {
            if goes(self.size) {
                block.free();
            }
        });
    }

    /// Follows `steps` addresses from line to line over the heap, each known only once the line before is there: ns a step.
    fn walk(&self, steps: usize) -> Result<f64, String> {
        let mut at = self.link()?;
        let begin = processor_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        for _ in 0..steps {
            at = Block::from_address(at.word(NEXT_CELL) as *mut u8);
        }
        black_box(at.address());
        Ok((processor_ns(libc::CLOCK_THREAD_CPUTIME_ID) - begin) / steps as f64)
    }

    /// Joins lines of the heap, evenly spread, in random order to one circle: a line of it.
    fn link(&self) -> Result<Block, String> {
        let mut random = Random::new(5, 0);
        // Twice what is to be expected, which chance does not reach.
        let mut cells = KernelWords::new(2 * self.count * (self.size / LINE) / LINES_A_CELL + 2)?;
        let mut ahead = 0;
        self.each(|block| {
            while ahead < self.size / LINE {
                cells.push(block.address() as usize + ahead * LINE);
                ahead += random.between(1, 2 * LINES_A_CELL - 1);
            }
            ahead -= self.size / LINE;
        });
        let cells = cells.words();
        for end in (1..cells.len()).rev() {
            cells.swap(end, random.below(end + 1));
        }
        for (place, &cell) in cells.iter().enumerate() {
            let next = cells[(place + 1) % cells.len()];
            Block::from_address(cell as *mut u8).set_word(NEXT_CELL, next as u64);
        }
        Ok(Block::from_address(cells[0] as *mut u8))
    }
}
