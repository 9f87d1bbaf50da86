//! The program of `huge-pages`: a heap of blocks of one size that is filled, walked at random, freed and filled again.
//!
//! `huge-heap bytes=N block=N steps=N`, and the protocol of `neighbour`: a line after each phase, then it waits. What is
//! measured is the heap alone. The program keeps no table of its blocks: each has the address of the next in its first word.
//!
//! Times are processor time. Of a fill and of the frees it is the process's, as an allocator may let its own thread do a
//! part of the work. Of the walk it is the thread's.

use crate::base::clock::processor_ns;
use crate::base::prelude::*;
use memmap2::MmapMut;

const LINE: usize = 64;
/// Lines of the heap for each that is walked over.
const LINES_A_CELL: usize = 16;
/// The words of a block and of a cell.
const NEXT_BLOCK: usize = 0;
const NEXT_CELL: usize = 1;
/// One block of so many stays at the end.
const KEPT: usize = 4;

struct Chain {
    first: Block,
    size: usize,
    count: usize,
}

pub fn main(words: &Words) -> Result<()> {
    let (bytes, steps) = (words.number("bytes")? as usize, words.number("steps")?.max(1) as usize);
    let size = (words.number("block")? as usize).max(LINE);
    let count = (bytes / size).max(1);
    let pages = (count * size) as f64 / PAGE as f64;
    phase(format_args!("{{\"phase\":\"start\"}}"));
    let (chain, fill) = timed(|| Chain::fill(size, count));
    let step = chain.walk(steps)?;
    phase(format_args!("{{\"fill_ns\":{:.1},\"step_ns\":{step:.2}}}", fill / pages));
    let ((), free) = timed(|| chain.each(Block::free));
    let (chain, fill) = timed(|| Chain::fill(size, count));
    let step = chain.walk(steps)?;
    phase(format_args!("{{\"free_ns\":{:.1},\"fill_ns\":{:.1},\"step_ns\":{step:.2}}}", free / pages, fill / pages));
    let mut random = Random::new(3, 0);
    chain.each(|block| {
        if random.below(KEPT) != 0 {
            block.free();
        }
    });
    phase(format_args!("{{\"phase\":\"freed\"}}"));
    end()
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let begin = processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    let result = work();
    (result, processor_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - begin)
}

impl Chain {
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

    fn each(&self, mut visit: impl FnMut(Block)) {
        let mut block = self.first;
        while !block.is_none() {
            let next = Block::from_address(block.word(NEXT_BLOCK) as *mut u8);
            visit(block);
            block = next;
        }
    }

    /// ns of a step from cell to cell, each of which names the next.
    fn walk(&self, steps: usize) -> Result<f64> {
        let mut at = self.link()?;
        let begin = processor_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        for _ in 0..steps {
            at = Block::from_address(at.word(NEXT_CELL) as *mut u8);
        }
        black_box(at.address());
        Ok((processor_ns(libc::CLOCK_THREAD_CPUTIME_ID) - begin) / steps as f64)
    }

    /// Links some lines of all blocks to a circle in random order.
    fn link(&self) -> Result<Block> {
        let mut random = Random::new(5, 0);
        let most = 2 * self.count * (self.size / LINE) / LINES_A_CELL + 2;
        let mut memory = MmapMut::map_anon(most * size_of::<u64>())?;
        let cells = memory.as_chunks_mut::<8>().0;
        let (mut count, mut ahead) = (0, 0);
        self.each(|block| {
            while ahead < self.size / LINE && count < most {
                cells[count] = (block.address() as u64 + (ahead * LINE) as u64).to_ne_bytes();
                count += 1;
                ahead += random.between(1, 2 * LINES_A_CELL - 1);
            }
            ahead = ahead.saturating_sub(self.size / LINE);
        });
        let cells = &mut cells[..count];
        for end in (1..cells.len()).rev() {
            cells.swap(end, random.below(end + 1));
        }
        let cell = |at: usize| u64::from_ne_bytes(cells[at % cells.len()]);
        for place in 0..cells.len() {
            Block::from_address(cell(place) as *mut u8).set_word(NEXT_CELL, cell(place + 1));
        }
        Ok(Block::from_address(cell(0) as *mut u8))
    }
}
