//! E13's neighbour: a process whose demand for memory swings between two bounds, and which works in what it holds.
//!
//! Its work is to write each word of a block of its memory, one block after another in random order, as fast as it can:
//! less is done where memory has to come from swap, or from the cgroup by reclaim. A line of JSON each half second, so
//! that a kill loses none of the work before it.

use crate::base::args::read_numbers;
use crate::base::mem::{PAGE, Random};
use std::io::Write;
use std::time::{Duration, Instant};

/// Bytes that are taken, worked on and returned at a time.
const BLOCK: usize = 1 << 20;
const REPORT: Duration = Duration::from_millis(500);

/// Memory straight from the kernel, so that no allocator is in it.
struct Block(*mut u8);

/// `swing least=BYTES most=BYTES period=MS ms=N`
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut least, mut most, mut period, mut ms) = (0, 0, 1, 0);
    read_numbers(args, "least, most, period, ms", |key, number| {
        match key {
            "least" => least = number,
            "most" => most = number,
            "period" => period = number.max(1),
            "ms" => ms = number,
            _ => return false,
        }
        true
    })?;
    let start = Instant::now();
    let (end, mut next_report) = (Duration::from_millis(ms), REPORT);
    let (mut held, mut random, mut work) = (Vec::new(), Random::new(11, 0), 0u64);
    loop {
        let at = start.elapsed();
        if at >= next_report || at >= end {
            println!("{{\"work\":{work},\"held\":{}}}", held.len() * BLOCK);
            std::io::stdout().flush().map_err(|why| why.to_string())?;
            next_report = at + REPORT;
        }
        if at >= end {
            return Ok(());
        }
        let wanted = (demand(at.as_secs_f64() * 1e3 / period as f64, least, most) / BLOCK as u64).max(1) as usize;
        match held.len().cmp(&wanted) {
            std::cmp::Ordering::Less => held.push(Block::new()?),
            std::cmp::Ordering::Greater => drop(held.swap_remove(random.below(held.len()))),
            std::cmp::Ordering::Equal => {}
        }
        let chosen = random.below(held.len());
        held[chosen].write();
        work += 1;
    }
}

/// Bytes that are wanted after so many periods: up from the least to the most and down again, evenly.
fn demand(periods: f64, least: u64, most: u64) -> u64 {
    let phase = periods.fract() * 2.0;
    let share = if phase < 1.0 { phase } else { 2.0 - phase };
    least + ((most - least) as f64 * share) as u64
}

impl Block {
    fn new() -> Result<Block, String> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping, chosen by the kernel.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), BLOCK, access, kind, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(format!("cannot map {BLOCK} bytes: {}", std::io::Error::last_os_error()));
        }
        Ok(Block(at.cast()))
    }

    fn write(&mut self) {
        for page in (0..BLOCK).step_by(PAGE) {
            for word in (page..page + PAGE).step_by(size_of::<u64>()) {
                // SAFETY: `word` lies in the block's mapping, which is aligned, writable and this thread's alone.
                unsafe {
                    let word = self.0.add(word).cast::<u64>();
                    word.write_volatile(word.read_volatile().wrapping_add(1));
                }
            }
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, of that length; nothing points into it.
        unsafe { libc::munmap(self.0.cast(), BLOCK) };
    }
}
