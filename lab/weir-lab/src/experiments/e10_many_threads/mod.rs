//! E10: what an allocator holds for threads that used it once and sleep.

mod measure;
mod report;

use crate::harness::args::RunArgs;
use crate::harness::thread_limit;
use crate::peers::Allocator;
use measure::{COUNTS, Row, as_json, measure};
use serde_json::Value;

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let rounds = args.rounds;
    let mut rows: Vec<Row> = Vec::new();
    for threads in COUNTS.into_iter().filter(|&threads| !args.quick || threads <= 1_000) {
        if let Err(why) = thread_limit::allows(threads) {
            println!("{threads} threads are left out: {why}.\n");
            continue;
        }
        let row = measure(threads, &allocators, rounds, rows.last())?;
        rows.push(row);
    }
    let names: Vec<&str> = allocators.iter().map(|allocator| allocator.name.as_str()).collect();
    report::print(&names, &args.subject, &rows);
    Ok(as_json(&names, &args.subject, rounds, &rows))
}
