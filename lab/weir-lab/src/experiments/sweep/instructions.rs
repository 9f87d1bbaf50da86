//! The sweep by instructions: what a free and a malloc of each size take, counted one by one, so that a cliff is found on
//! any machine and in seconds.

use crate::harness::child::{command, load_program};
use crate::harness::single_step::{Call, Counting};
use crate::harness::statistics::Sample;
use crate::peers::Allocator;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How blocks are made, by the load program's names, and up to which size. What `calloc` takes of a block mapped on its own is
/// 5 or 30 thousand instructions, by whether a look at its pages is due: not steady enough to be judged by so few.
pub const PATTERNS: [(&str, u64); 4] =
    [("malloc", LARGEST), ("calloc", 4 << 20), ("aligned", LARGEST), ("doubled", LARGEST)];
/// Sizes to a doubling.
const STEPS: u32 = 4;
const SMALLEST: f64 = 8.0;
const LARGEST: u64 = 64 << 20;
/// What a replacement is made of; each has one free, which is the first.
const FREE: usize = 0;
const FUNCTIONS: [&str; 5] = ["free", "malloc", "calloc", "realloc", "aligned_alloc"];
/// What a system call counts as: some 0.3 us where an instruction takes 0.3 ns. A choice; what matters is that it is much.
const SYSTEM_CALL: u64 = 1_000;
/// Steps and calls at each size after which it is enough: three replacements, or more of those that take little. A step takes 20 us on the VM that this was written on, 40 while it is busy: half a minute in all.
const ENOUGH: u64 = 1_000;
const LEAST_CALLS: usize = 7;
/// Settings of Weir under which time decides nothing: stepped through, a program is a thousand times as slow.
const TIMELESS: [(&str, &str); 2] = [("WEIR_BACKGROUND", "0"), ("WEIR_IDLE_MS", "3600000")];

/// Instructions of a replacement by size.
pub type Series = BTreeMap<u64, f64>;

/// Counts all sizes of each pattern, in the order of [`PATTERNS`].
pub fn count(allocator: &Allocator) -> Result<Vec<Series>, String> {
    let points: Vec<(usize, u64)> =
        (0..PATTERNS.len()).flat_map(|i| sizes(PATTERNS[i].1).into_iter().map(move |size| (i, size))).collect();
    let next = AtomicUsize::new(0);
    let counted = Mutex::new(Ok(vec![Series::new(); PATTERNS.len()]));
    // A thread a CPU: each child and what steps through it share one.
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&(pattern, size)) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (name, _) = PATTERNS[pattern];
                    let answer = one(allocator, name, size);
                    let mut counted = counted.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    match (answer, &mut *counted) {
                        (Ok(cost), Ok(series)) => drop(series[pattern].insert(size, cost)),
                        (Err(why), Ok(_)) => *counted = Err(format!("{name} of {size} B: {why}")),
                        (_, Err(_)) => return,
                    }
                }
            });
        }
    });
    counted.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The median of the replacements: what comes once in many (a look at a block's pages, at each 256th free) is not told by
/// so few.
fn one(allocator: &Allocator, pattern: &str, size: u64) -> Result<f64, String> {
    let mut start = command(load_program()?, allocator);
    start.args(["sweep-calls", pattern, &size.to_string()]).envs(TIMELESS);
    let copies = &["memcpy", "memmove", "memset"];
    let (functions, system_call) = (&FUNCTIONS, SYSTEM_CALL);
    let calls = Counting { functions, copies, system_call, enough: ENOUGH, least: LEAST_CALLS }.count(start)?;
    // From one free to the next: the last one may not have been followed by all that makes the block.
    let frees: Vec<usize> = (0..calls.len()).filter(|&at| calls[at].0 == FREE).collect();
    let sum = |calls: &[Call]| calls.iter().map(|(_, instructions)| instructions).sum::<u64>() as f64;
    let replacements: Sample = frees.windows(2).map(|two| sum(&calls[two[0]..two[1]])).collect();
    if replacements.len() == 0 { Err("its free was not entered twice".into()) } else { Ok(replacements.median()) }
}

/// From [`SMALLEST`] to `largest`: whole words, [`STEPS`] to a doubling.
fn sizes(largest: u64) -> Vec<u64> {
    let steps = (largest as f64 / SMALLEST).log2() as u32 * STEPS;
    let size = |step: u32| (SMALLEST * 2f64.powf(f64::from(step) / f64::from(STEPS))) as u64 / 8 * 8;
    let mut all: Vec<u64> = (0..=steps).map(size).collect();
    all.dedup();
    all
}
