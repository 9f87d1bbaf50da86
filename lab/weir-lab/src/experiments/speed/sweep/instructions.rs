//! The sweep by instructions: what a free and a malloc of each size take, counted one by one. So a cliff is found on any
//! machine and in seconds, and is the same on a busy one.

use super::cliffs::{Series, Step, faults, is_cliff, steps};
use super::known::{BY_CHANCE, KNOWN};
use crate::harness::prelude::*;
use crate::harness::stepping::{Call, Counting};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const LARGEST: u64 = 64 << 20;
/// Patterns of the load program, each with its largest size.
const PATTERNS: [(&str, u64); 4] =
    [("malloc", LARGEST), ("calloc", 4 << 20), ("aligned", LARGEST), ("doubled", LARGEST)];
/// Sizes to a doubling.
const STEPS: u32 = 4;
const SMALLEST: f64 = 8.0;
const FREE: usize = 0;
const COUNTING: Counting = Counting {
    functions: &["free", "malloc", "calloc", "realloc", "aligned_alloc"],
    copies: &["memcpy", "memmove", "memset"],
    system_call: 1_000,
    enough: 1_000,
    least: 7,
};
/// Time decides nothing: no background thread, no windows.
const TIMELESS: [(&str, &str); 2] = [("WEIR_BACKGROUND", "0"), ("WEIR_IDLE_MS", "3600000")];

/// Counts, prints, and fails where Weir's cliffs are not those that are known.
pub fn judge(lab: &mut Lab, subject: &Allocator) -> Result<()> {
    eprintln!("sweep: instructions of {subject}");
    let counted = count(subject)?;
    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    for ((pattern, _), series) in PATTERNS.into_iter().zip(&counted) {
        for step in steps(series) {
            let known = KNOWN.iter().find(|row| row.pattern == pattern && row.size == step.size);
            if known.is_some() || is_cliff(step) {
                let Step { size, factor, .. } = step;
                let (was, why) = known.map_or(("-".into(), ""), |row| (short(row.factor), row.why));
                rows.push(vec![pattern.into(), size.to_string(), short(series[&size]), short(factor), was, why.into()]);
            }
        }
        let by_chance = |size| BY_CHANCE.iter().any(|(of, sizes)| *of == pattern && sizes.contains(&size));
        wrong.extend(faults(pattern, series, KNOWN, by_chance));
        lab.note(&format!("instructions of {pattern}"), json!(series.iter().collect::<Vec<_>>()));
    }
    let head = ["pattern", "size, B", "instructions", "to the size before", "known", "why"];
    println!("## Cliffs of {subject}, by instructions\n\n{}", table(head, rows));
    if subject.name == WEIR && !wrong.is_empty() {
        lab.fail(format!("cliffs are not those of sweep/known.rs: {}", wrong.join("; ")));
    }
    Ok(())
}

/// Each pattern's series, counted on all CPUs.
fn count(allocator: &Allocator) -> Result<Vec<Series>> {
    let of_pattern = |at: usize| sizes(PATTERNS[at].1).into_iter().map(move |size| (at, size));
    let points: Vec<(usize, u64)> = (0..PATTERNS.len()).flat_map(of_pattern).collect();
    let (next, counted) = (AtomicUsize::new(0), Mutex::new(vec![Series::new(); PATTERNS.len()]));
    let work = || -> Result<()> {
        while let Some(&(pattern, size)) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = PATTERNS[pattern].0;
            let cost = one(allocator, name, size).with_context(|| format!("{name} of {size} B"))?;
            counted.lock().unwrap_or_else(|poisoned| poisoned.into_inner())[pattern].insert(size, cost);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    Ok(counted.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// The instructions of a replacement: from a free to the next.
fn one(allocator: &Allocator, pattern: &str, size: u64) -> Result<f64> {
    let mut command = load(allocator, &format!("sweep-calls pattern={pattern} size={size}"))?;
    command.envs(TIMELESS);
    let calls = COUNTING.count(command)?;
    let frees: Vec<usize> = (0..calls.len()).filter(|&at| calls[at].0 == FREE).collect();
    let sum = |calls: &[Call]| calls.iter().map(|(_, instructions)| instructions).sum::<u64>() as f64;
    let replacements: Sample = frees.windows(2).map(|two| sum(&calls[two[0]..two[1]])).collect();
    ensure!(!replacements.0.is_empty(), "its free was not entered twice");
    Ok(replacements.median())
}

fn sizes(largest: u64) -> Vec<u64> {
    let steps = (largest as f64 / SMALLEST).log2() as u32 * STEPS;
    let size = |step: u32| (SMALLEST * 2f64.powf(f64::from(step) / f64::from(STEPS))) as u64 / 8 * 8;
    let mut all: Vec<u64> = (0..=steps).map(size).collect();
    all.dedup();
    all
}
