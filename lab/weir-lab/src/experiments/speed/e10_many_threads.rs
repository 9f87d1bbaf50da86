//! Many threads: what an allocator holds for threads that used it once and sleep, above a program without malloc.
//!
//! Each thread allocates 200 blocks of 16 B to 8 KiB (evenly random), touches every page, frees all, sleeps; stacks of 64 KiB.

use crate::harness::prelude::*;
use std::collections::BTreeMap;

/// Seconds after all sleep.
const LOOKS: [f64; 3] = [0.0, 2.0, 5.0];
const COUNTS: [u64; 5] = [10, 100, 1_000, 4_000, 10_000];

pub fn run(lab: &mut Lab) -> Result<()> {
    let allocators = lab.allocators.clone();
    // What the program itself holds, and what each allocator last held a thread.
    let (mut none, mut of_thread) = (BTreeMap::new(), BTreeMap::new());
    let (mut counts, most) = (Vec::new(), lab.pick(10_000, 1_000));
    for count in COUNTS.into_iter().filter(|count| *count <= most) {
        match one(count, &Allocator::none(), " blocks=0") {
            Ok(looks) => counts.push((none.insert(count, looks), count).1),
            Err(why) => _ = lab.skips(&format!("{count} threads"), vec![format!("{why:#}")]),
        }
    }
    let measures = LOOKS.map(|seconds| less(format!("MiB, {seconds} s after all sleep, by threads")).mib());
    lab.by_measure(measures.into(), &counts, &allocators, |count, allocator| {
        let (expected, available) =
            (of_thread.get(&allocator.name).copied().unwrap_or(0.0) * *count as f64, available_memory()?);
        let gib = f64::from(1 << 30);
        ensure!(expected < 0.75 * available, "would need {:.1} GiB of {:.1}", expected / gib, available / gib);
        let looks = one(*count, allocator, "")?;
        of_thread.insert(allocator.name.clone(), looks[0] / *count as f64);
        Ok(looks.iter().zip(none[count]).map(|(look, none)| look - none).collect())
    });
    Ok(())
}

fn one(count: u64, allocator: &Allocator, more: &str) -> Result<[f64; LOOKS.len()]> {
    let command = load(allocator, &format!("many-threads count={count}{more}"))?;
    let program = Program::first_phase("many-threads", command, None)?;
    let mut looks = [0.0; LOOKS.len()];
    for (look, seconds) in looks.iter_mut().zip(LOOKS) {
        *look = program.memory_at(seconds)?.rss;
    }
    Ok(looks)
}
