//! Scaling: E9's threaded workloads on more and more threads, and what a call costs while more and more is live.

mod measure;
mod report;

use crate::experiments::e9_peers;
use crate::harness::args::RunArgs;
use crate::peers::Allocator;
use measure::{Curve, HEAP, THREADS, as_json, cells, heap, workload};
use serde_json::Value;

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let rounds = args.rounds;
    let mut curves = Vec::new();
    let known = e9_peers::workloads()?;
    let threaded: Vec<_> = known.into_iter().filter(|workload| workload.threads > 1).map(|w| w.name).collect();
    if let Some(unknown) = args.only.iter().find(|name| !threaded.contains(name) && **name != HEAP) {
        return Err(format!("'{unknown}' is no threaded workload: there are {}, {HEAP}", threaded.join(", ")));
    }
    let asked = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    for name in threaded.into_iter().filter(|name| asked(name)) {
        let points = THREADS.iter().map(|&threads| {
            eprintln!("{name}, {threads} threads: {rounds} rounds of {} allocators", allocators.len());
            (threads, cells(&allocators, rounds, || workload(&name, threads, args.quick)))
        });
        let points = points.collect();
        curves.push(Curve { name, points });
    }
    let heap = (asked(HEAP) && !args.quick).then(|| heap(&allocators, rounds)).transpose()?;
    let names: Vec<&str> = allocators.iter().map(|allocator| allocator.name.as_str()).collect();
    report::print(&names, &args.subject, &curves, heap.as_ref());
    Ok(as_json(&names, &args.subject, rounds, &curves, heap.as_ref()))
}
