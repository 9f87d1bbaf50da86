//! The program of E14: blocks of some sizes, of which few are left at random.
//!
//! `sparse bytes=N sizes=N+N.. keep=N`, and the protocol of `neighbour`. Each block's words are made of its number, so that all
//! differ and each can be checked. The table of the blocks is unmapped once all but the kept ones are freed. Each of those has
//! the address of the next in its first word.

use crate::base::prelude::*;
use memmap2::MmapMut;

/// The word with the next block's address, and that with a block's number.
const NEXT: usize = 0;
const NUMBER: usize = 1;
/// One block of so many is written to, and has this bit in its number then.
const WRITTEN: usize = 10;
const IS_WRITTEN: u64 = 1 << 31;
/// Least size of a block.
const LEAST: usize = 64;
/// The bits of a number that are the block's size.
const SIZE: u64 = IS_WRITTEN - 1;

pub fn main(words: &Words) -> Result<()> {
    let (bytes, keep) = (words.number("bytes")? as usize, words.number("keep")? as usize);
    let sizes: Vec<usize> = words.text("sizes")?.split('+').map(str::parse).collect::<Result<_, _>>()?;
    phase(format_args!("{{\"phase\":\"start\"}}"));
    let (first, live) = peak(&sizes, bytes, keep)?;
    phase(format_args!("{{\"phase\":\"freed\",\"live\":{live}}}"));
    let mut wrong = wrong(first);
    let mut random = Random::new(7, 0);
    let times = MmapMut::map_anon((live / LEAST).max(1) * size_of::<u64>())?;
    let mut times = Times(times, 0);
    each(first, |block, _| {
        if random.below(WRITTEN) == 0 {
            let begin = Instant::now();
            block.set_word(NUMBER, block.word(NUMBER) | IS_WRITTEN);
            times.note(begin.elapsed());
        }
    });
    let [p50, p999] = times.quantiles([0.5, 0.999]);
    wrong += self::wrong(first);
    phase(format_args!("{{\"wrong\":{wrong},\"p50_us\":{p50:.2},\"p999_us\":{p999:.2}}}"));
    end()
}

/// Times of writes, in memory of their own: the heap stays as it is.
struct Times(MmapMut, usize);

impl Times {
    fn all(&mut self) -> &mut [[u8; 8]] {
        &mut self.0.as_chunks_mut::<8>().0[..self.1]
    }

    fn note(&mut self, time: Duration) {
        self.1 += 1;
        let at = self.1 - 1;
        self.all()[at] = (time.as_nanos() as u64).to_be_bytes();
    }

    /// Times that these parts of all are not above, us.
    fn quantiles(&mut self, parts: [f64; 2]) -> [f64; 2] {
        self.all().sort_unstable();
        let all = self.all();
        parts.map(|part| {
            let at = ((all.len() as f64 * part).ceil() as usize).saturating_sub(1);
            all.get(at).map_or(0.0, |ns| u64::from_be_bytes(*ns) as f64 / 1e3)
        })
    }
}

/// Fills the heap and frees most of it; the first of the blocks that are left, and their bytes.
fn peak(sizes: &[usize], bytes: usize, keep: usize) -> Result<(Block, usize)> {
    let count: usize = sizes.iter().map(|size| bytes / size).sum();
    let mut table = MmapMut::map_anon(count * size_of::<u64>())?;
    let places = table.as_chunks_mut::<8>().0;
    let mut at = 0;
    for &size in sizes {
        for _ in 0..bytes / size {
            let block = Block::new(size);
            (2..size / 8).for_each(|word| block.set_word(word, content(at, word)));
            block.set_word(NUMBER, (at as u64) << 32 | size as u64);
            places[at] = (block.address() as u64).to_ne_bytes();
            at += 1;
        }
    }
    phase(format_args!("{{\"phase\":\"peak\"}}"));
    let (mut random, mut next, mut live) = (Random::new(3, 0), 0, 0);
    for place in places.iter().rev() {
        let block = Block::from_address(u64::from_ne_bytes(*place) as *mut u8);
        if random.below(keep) == 0 {
            block.set_word(NEXT, next);
            next = block.address() as u64;
            live += (block.word(NUMBER) & SIZE) as usize;
        } else {
            block.free();
        }
    }
    Ok((Block::from_address(next as *mut u8), live))
}

fn content(number: usize, word: usize) -> u64 {
    (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word as u64
}

/// Calls `f` with each block that is left and its size.
fn each(first: Block, mut f: impl FnMut(Block, usize)) {
    let mut block = first;
    while !block.is_none() {
        f(block, (block.word(NUMBER) & SIZE) as usize);
        block = Block::from_address(block.word(NEXT) as *mut u8);
    }
}

/// Blocks that are not as they were written.
fn wrong(first: Block) -> usize {
    let mut wrong = 0;
    each(first, |block, size| {
        let number = (block.word(NUMBER) >> 32) as usize;
        wrong += usize::from((2..size / 8).any(|word| block.word(word) != content(number, word)));
    });
    wrong
}
