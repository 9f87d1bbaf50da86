//! Tail latency: how long the slowest of many calls take, while memory comes free in bursts and is given back.

mod measure;
mod report;

use crate::harness::args::RunArgs;
use crate::harness::rounds;
use crate::peers::Allocator;
use measure::{Cell, Row, Setting, as_json, measure};
use serde_json::Value;

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let rounds = args.rounds;
    let ms = if args.quick { 250 } else { 2_000 };
    let cpus = std::thread::available_parallelism().map_or(2, |n| n.get().max(2));
    let mut rows: Vec<Row> = Vec::new();
    for (threads, pressure) in [(cpus, false), (cpus, true), (4 * cpus, false), (4 * cpus, true)] {
        let setting = Setting { threads, pressure };
        eprintln!(
            "latency, {threads} threads, pressure {pressure}: {rounds} rounds of {} allocators",
            allocators.len()
        );
        let mut cells: Vec<Cell> = allocators.iter().map(|_| Cell::default()).collect();
        for (_, chosen) in rounds::of(rounds, allocators.len()) {
            let cell = &mut cells[chosen];
            if cell.failed.is_none()
                && let Err(why) = measure(&setting, &allocators[chosen], ms, cell)
            {
                eprintln!("{} with {threads} threads: {why}", allocators[chosen].name);
                cell.failed = Some(why);
            }
        }
        rows.push((setting, cells));
    }
    let names: Vec<&str> = allocators.iter().map(|allocator| allocator.name.as_str()).collect();
    report::print(&names, &args.subject, &rows);
    Ok(as_json(&names, &args.subject, rounds, &rows))
}
