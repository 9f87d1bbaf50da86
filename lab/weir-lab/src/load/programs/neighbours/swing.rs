//! E13's neighbour: a process whose demand for memory swings between two bounds, and which works in what it holds.
//!
//! Its work is to write each word of a block of its memory, one block after another in random order, as fast as it can.
//! Less is done where memory has to come from swap, or from the cgroup by reclaim. A line of JSON each half second, so
//! that a kill loses none of the work before it.

use crate::base::prelude::*;
use memmap2::MmapMut;
use std::cmp::Ordering;

const BLOCK: usize = 1 << 20;
const REPORT: Duration = Duration::from_millis(500);

pub fn main(words: &Words) -> Result<()> {
    let (least, most) = (words.number("least")?, words.number("most")?);
    let (period, end) = (words.number("period")?.max(1), Duration::from_millis(words.number("ms")?));
    let (start, mut next_report) = (Instant::now(), REPORT);
    let (mut held, mut random, mut work) = (Vec::new(), Random::new(11, 0), 0u64);
    loop {
        let at = start.elapsed();
        if at >= next_report || at >= end {
            say(format_args!("{{\"work\":{work},\"held\":{}}}", held.len() * BLOCK));
            next_report = at + REPORT;
        }
        if at >= end {
            return Ok(());
        }
        // Up and down again in a period, in straight lines.
        let phase = (at.as_secs_f64() * 1e3 / period as f64).fract() * 2.0;
        let share = if phase < 1.0 { phase } else { 2.0 - phase };
        let wanted = least + ((most - least) as f64 * share) as u64;
        match held.len().cmp(&((wanted / BLOCK as u64).max(1) as usize)) {
            Ordering::Less => held.push(MmapMut::map_anon(BLOCK)?),
            Ordering::Greater => drop(held.swap_remove(random.below(held.len()))),
            Ordering::Equal => {}
        }
        let chosen = random.below(held.len());
        for word in held[chosen].as_chunks_mut::<8>().0 {
            *word = std::hint::black_box(u64::from_ne_bytes(*word).wrapping_add(1)).to_ne_bytes();
        }
        work += 1;
    }
}
