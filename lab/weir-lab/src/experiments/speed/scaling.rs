//! Scaling: e9's threaded workloads on 1 to 64 threads. `big-heap` tells what a call costs while up to 16 GiB are live. There a
//! random block of 16 B to 64 KiB is freed, another allocated, and its pages touched.
//!
//! With more threads than CPUs, the work is the same machine's: level is as good as it gets. The workload xmalloc works in pairs:
//! its one thread is two. The option --only takes threaded workloads that `weir-lab list` names, and big-heap.

use crate::experiments::speed::e9_peers::workloads;
use crate::harness::prelude::*;

const THREADS: [u64; 5] = [1, 2, 4, 16, 64];
const HEAP: &str = "big-heap";
/// The share that a heap may take above its blocks.
const HEADROOM: f64 = 1.3;

pub fn run(lab: &mut Lab) -> Result<()> {
    let known = workloads()?;
    let threaded = known.iter().filter(|workload| workload.threads > 1).map(|workload| workload.name.as_str());
    let chosen = lab.chosen(&threaded.chain([HEAP]).collect::<Vec<_>>())?;
    let (size, allocators) = (lab.pick("ms=500 permille=250", "ms=60 permille=10"), lab.allocators.clone());
    let one = |allocator: &Allocator, words: &str| {
        let said = told_by(load(allocator, words)?, 180, words)?;
        Ok(vec![number(&said, "ns")? / number(&said, "ops")?])
    };
    for name in chosen.iter().filter(|name| **name != HEAP) {
        lab.by_measure(
            vec![less(format!("{name}, ns an operation, by threads"))],
            &THREADS,
            &allocators,
            |threads, allocator| one(allocator, &format!("{name} threads={threads} {size}")),
        );
    }
    if chosen.contains(&HEAP) && !lab.args.quick {
        let available = available_memory()?;
        let (fit, rest): (Vec<u64>, Vec<u64>) =
            [1, 4, 16].iter().partition(|gib| (**gib << 30) as f64 * HEADROOM < available);
        println!("Left out, for want of memory: heaps of {rest:?} GiB.\n");
        lab.by_measure(vec![less("big-heap, ns an operation, by GiB live")], &fit, &allocators, |gib, allocator| {
            one(allocator, &format!("{HEAP} mib={} ms=2000", gib << 10))
        });
    }
    Ok(())
}
