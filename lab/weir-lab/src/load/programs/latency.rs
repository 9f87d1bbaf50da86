//! How long single calls of malloc and free take while threads also make and free bursts of memory.

use crate::base::clock;
use crate::base::mem::{Block, Random};
use crate::base::run::Run;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Live blocks a thread, of 16 B to 32 KiB, every doubling as likely.
const SLOTS: usize = 4_096;
/// So many replacements lie between two bursts of a thread.
const CALM: usize = 40_000;
/// Bytes of a burst, over all threads: enough that what comes free is worth giving back.
const BURST: usize = 64 << 20;
/// Ten seconds of any processor's ticks fit.
const LONGEST: u64 = 1 << 36;

/// Ticks of each call.
struct Ticks {
    malloc: Histogram<u64>,
    free: Histogram<u64>,
}

/// `latency [threads=N] [ms=N]`: prints the distributions in nanoseconds as one line of JSON.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let mut run = Run { threads: 2, ..Run::default() };
    run.read_args(args)?;
    let (ns, overhead) = (clock::ns_a_tick(), clock::overhead());
    let all = Mutex::new(Ticks::new()?);
    run.until_time_is_over(|index, over| {
        let Ok(mut mine) = Ticks::new() else { return 0 };
        work(&run, index, over, &mut mine);
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        // Same bounds everywhere: adding cannot fail.
        let _ = all.malloc.add(&mine.malloc).and(all.free.add(&mine.free));
        1
    });
    let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    if all.malloc.is_empty() || all.free.is_empty() {
        return Err("no call was measured".into());
    }
    println!(
        "{{\"clock_ns\":{},\"malloc\":{},\"free\":{}}}",
        overhead as f64 * ns,
        told(&all.malloc, ns),
        told(&all.free, ns)
    );
    Ok(())
}

impl Ticks {
    fn new() -> Result<Ticks, String> {
        let new = || Histogram::new_with_bounds(1, LONGEST, 3).map_err(|why| format!("no histogram: {why}"));
        Ok(Ticks { malloc: new()?, free: new()? })
    }

    /// The touch of a new page is the program's, not the call's.
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
        let end = clock::now();
        self.free.saturating_record(end - begin);
    }
}

/// Random replacement, and from time to time a burst. Blocks that are not measured are freed at the end.
fn work(run: &Run, index: usize, over: &AtomicBool, ticks: &mut Ticks) {
    let mut random = Random::new(run.seed, index);
    let mut slots = vec![Block::NONE; SLOTS];
    let mut burst = Vec::new();
    // Threads burst one after another, not all in one moment.
    let mut calm = CALM * (index + 1) / run.threads;
    while !over.load(Ordering::Relaxed) {
        let slot = &mut slots[random.below(SLOTS)];
        if !slot.is_none() {
            ticks.free(*slot);
        }
        *slot = ticks.new_block(random.doublings(4, 15));
        calm -= 1;
        if calm == 0 {
            calm = CALM;
            peak(BURST / run.threads, &mut random, &mut burst, ticks);
        }
    }
    slots.iter().for_each(|block| block.free());
}

fn peak(bytes: usize, random: &mut Random, burst: &mut Vec<Block>, ticks: &mut Ticks) {
    let mut held = 0;
    while held < bytes {
        let size = random.doublings(4, 18);
        burst.push(ticks.new_block(size));
        held += size;
    }
    burst.drain(..).for_each(|block| ticks.free(block));
}

fn told(ticks: &Histogram<u64>, ns: f64) -> String {
    let at = |quantile| ticks.value_at_quantile(quantile) as f64 * ns;
    format!(
        "{{\"calls\":{},\"p50\":{},\"p99\":{},\"p99.9\":{},\"p99.99\":{},\"max\":{}}}",
        ticks.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        ticks.max() as f64 * ns
    )
}
