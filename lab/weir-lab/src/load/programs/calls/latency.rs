//! How long single calls of malloc and free take while threads also make and free bursts of memory.

use crate::base::clock;
use crate::base::prelude::*;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

const SLOTS: usize = 4_096;
/// Replacements between two bursts of a thread.
const CALM: usize = 40_000;
/// Bytes of a burst, over all threads.
const BURST: usize = 64 << 20;
const LONGEST: u64 = 1 << 36;

struct Ticks {
    malloc: Histogram<u64>,
    free: Histogram<u64>,
}

pub fn main(words: &Words) -> Result<()> {
    let run = Run::read(words, 2, 1000)?;
    let (ns, overhead) = (clock::ns_a_tick(), clock::overhead());
    let all = Mutex::new(Ticks::new()?);
    run.until_time_is_over(|index, over| {
        let Ok(mut mine) = Ticks::new() else { return 0 };
        work(&run, index, over, &mut mine);
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = all.malloc.add(&mine.malloc).and(all.free.add(&mine.free));
        1
    });
    let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(!all.malloc.is_empty() && !all.free.is_empty(), "no call was measured");
    let told = |ticks: &Histogram<u64>| {
        [0.5, 0.99, 0.999, 0.9999, 1.0].map(|quantile| ticks.value_at_quantile(quantile) as f64 * ns)
    };
    let (malloc, free) = (told(&all.malloc), told(&all.free));
    println!("{{\"clock_ns\":{},\"malloc\":{malloc:?},\"free\":{free:?}}}", overhead as f64 * ns);
    Ok(())
}

impl Ticks {
    fn new() -> Result<Ticks> {
        let new = || Histogram::new_with_bounds(1, LONGEST, 3);
        Ok(Ticks { malloc: new()?, free: new()? })
    }

    #[inline]
    fn new_block(&mut self, size: usize) -> Block {
        let begin = clock::now();
        // SAFETY: malloc takes any size.
        let raw = unsafe { libc::malloc(size) };
        let end = clock::now();
        self.malloc.saturating_record(end - begin);
        let block = Block::checked(raw, size);
        block.touch_pages(size);
        block
    }

    #[inline]
    fn free(&mut self, block: Block) {
        let begin = clock::now();
        block.free();
        self.free.saturating_record(clock::now() - begin);
    }
}

fn work(run: &Run, index: usize, over: &AtomicBool, ticks: &mut Ticks) {
    let mut random = Random::new(run.seed, index);
    let (mut slots, mut burst) = (vec![Block::NONE; SLOTS], Vec::new());
    let mut calm = CALM * (index + 1) / run.threads; // So that threads do not burst together.
    while !over.load(Ordering::Relaxed) {
        let slot = &mut slots[random.below(SLOTS)];
        if !slot.is_none() {
            ticks.free(*slot);
        }
        *slot = ticks.new_block(random.doublings(4, 15));
        calm -= 1;
        if calm == 0 {
            calm = CALM;
            let mut held = 0;
            while held < BURST / run.threads {
                let size = random.doublings(4, 18);
                burst.push(ticks.new_block(size));
                held += size;
            }
            burst.drain(..).for_each(|block| ticks.free(block));
        }
    }
    slots.iter().for_each(|block| block.free());
}
