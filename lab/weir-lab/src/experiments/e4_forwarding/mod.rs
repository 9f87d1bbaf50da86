//! E4, allocator-heavy forwarding: buffers taken on one CPU and given back on another, from an object cache, with no
//! pressure, soft pressure and drains; malloc and the peers' mallocs beside it.

mod measure;
mod report;

use crate::harness::args::RunArgs;
use crate::harness::rounds;
use crate::peers::Allocator;
use measure::{as_json, one, rows};
use serde_json::Value;

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let rounds = args.rounds;
    let ms = if args.quick { 300 } else { 1000 };
    let mut rows = rows(allocators);
    let count = rows.len();
    for (round, chosen) in rounds::of(rounds, count) {
        let row = &mut rows[chosen];
        eprintln!("e4, round {} of {rounds}: {}", round + 1, row.label);
        if row.runs.failed.is_none()
            && let Err(why) = one(row, ms)
        {
            eprintln!("{}: {why}", row.label);
            row.runs.failed = Some(why);
        }
    }
    report::print(&rows);
    Ok(as_json(&rows))
}
