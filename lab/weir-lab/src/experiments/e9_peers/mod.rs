//! E9: the standard allocator workloads, and real programs, under every allocator, in rounds in which each has its turn.

mod measure;
pub mod programs;
mod report;

use crate::experiments::redis;
use crate::harness::args::RunArgs;
use crate::peers::{Allocator, WEIR};
pub use measure::workloads;
use measure::{Cell, Row, as_json, measure, measure_programs, rounds};
use programs::PROGRAMS;
use serde_json::Value;

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, mut allocators: Vec<Allocator>) -> Result<Value, String> {
    if args.profiled {
        allocators.extend(profiled(&allocators));
    }
    let runs = args.rounds;
    let known = workloads()?;
    let programs = PROGRAMS.iter().map(|program| program.name);
    if let Some(unknown) = args.only.iter().find(|asked| {
        known.iter().all(|workload| workload.name != **asked) && programs.clone().all(|name| name != asked.as_str())
    }) {
        return Err(format!("no workload or program is called '{unknown}': see `weir-lab list`"));
    }
    let asked = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let mut rows: Vec<Row> = Vec::new();
    for workload in known.into_iter().filter(|workload| asked(&workload.name)) {
        let measure = |allocator: &Allocator, cell: &mut Cell| measure(&workload, allocator, args.quick, cell);
        let cells = rounds(&workload.name, &allocators, runs, measure);
        rows.push((workload, cells));
    }
    let names: Vec<&str> = allocators.iter().map(|allocator| allocator.name.as_str()).collect();
    if !rows.is_empty() {
        report::print("", &names, &args.subject, &rows);
    }
    let programs = measure_programs(&redis::with_glibc_by_name(allocators.clone())?, runs, args.quick, asked)?;
    if !programs.is_empty() {
        report::print("Programs. ", &names, &args.subject, &programs);
    }
    Ok(as_json(&names, &args.subject, runs, &rows, &programs))
}

/// Weir with its heap profile on, at the mean that it recommends.
fn profiled(allocators: &[Allocator]) -> Option<Allocator> {
    let weir = allocators.iter().find(|allocator| allocator.name == WEIR)?;
    Some(Allocator { name: "weir, profiled".into(), env: &[("WEIR_PROFILE_BYTES", "512K")], ..weir.clone() })
}
