//! `fio`: requests small and random, large and in sequence, at the ends of queue depth and of clients, against each
//! server in turn; and what each server holds in memory at rest.

mod measure;
mod points;
mod report;
mod resident;

use crate::harness::args::RunArgs;
use crate::harness::nbd_servers::Kind;
use crate::harness::{fio, programs};
use crate::peers::Allocator;
use points::Size;
use serde_json::Value;

/// The parts: `--only` takes their names.
const PARTS: [&str; 2] = ["throughput", "resident"];

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, _allocators: Vec<Allocator>) -> Result<Value, String> {
    if let Some(unknown) = args.only.iter().find(|only| !PARTS.contains(&only.as_str())) {
        return Err(format!("'{unknown}' is no part of fio: there are {}", PARTS.join(", ")));
    }
    let asked = |part: &str| args.only.is_empty() || args.only.iter().any(|only| only == part);
    let mut missing = programs::missing(&[fio::PROGRAM]);
    missing.extend(Kind::Weir.missing());
    if !missing.is_empty() {
        println!("fio is skipped. What is missing:\n\n- {}\n", missing.join("\n- "));
        return Ok(serde_json::json!({ "skipped": missing }));
    }
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.missing().is_none()).collect();
    Kind::ALL.iter().filter_map(|kind| kind.missing()).for_each(|what| println!("left out: {what}\n"));
    let _lock = crate::harness::exclusive::lock()?;
    let size = if args.quick { Size::QUICK } else { Size::FULL };
    let (mut points, mut rests) = (Vec::new(), Vec::new());
    if asked("throughput") {
        points = measure::all(args.rounds, &size, &kinds)?;
        report::points(&size, &kinds, &points);
    }
    if asked("resident") {
        rests = resident::all(args.rounds, &size, &kinds)?;
        report::residents(&size, &kinds, &rests);
    }
    Ok(report::as_json(&kinds, &points, &rests))
}
