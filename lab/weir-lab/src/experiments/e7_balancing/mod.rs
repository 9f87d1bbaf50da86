//! E7, balancing: a file system on a device of which Weir is the cache, beside a program that scans a large anonymous
//! segment in the same memory cgroup. When is a node balanced: when any zone is, when all are, when a quarter is?

mod counters;
mod document;
mod measure;
mod postmark;
mod report;
mod requirements;
mod setting;
mod small_zone;
mod stage;

use crate::harness::args::RunArgs;
use crate::peers::Allocator;
use measure::as_json;
use serde_json::Value;
use setting::{Size, Test};

/// The parts: `--only` takes their names.
const PARTS: [&str; 3] = ["postmark", "streaming", "small-zone"];

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, _allocators: Vec<Allocator>) -> Result<Value, String> {
    if let Some(unknown) = args.only.iter().find(|only| !PARTS.contains(&only.as_str())) {
        return Err(format!("'{unknown}' is no part of e7: there are {}", PARTS.join(", ")));
    }
    let asked = |part: &str| args.only.is_empty() || args.only.iter().any(|only| only == part);
    let _lock = crate::harness::exclusive::lock()?;
    let size = if args.quick { Size::QUICK } else { Size::FULL };
    let tests: Vec<Test> = Test::ALL.into_iter().filter(|test| asked(test.name())).collect();
    let missing = requirements::missing();
    let mut done = Vec::new();
    if tests.is_empty() {
    } else if missing.is_empty() {
        done = measure::all(args, &size, &tests)?;
        report::print(&size, &done);
    } else {
        println!("postmark and streaming are left out. What is missing:\n");
        missing.iter().for_each(|what| println!("- {what}"));
        println!();
    }
    if asked("small-zone") {
        done.extend(measure::small_zones(args.rounds, &size));
        report::small_zones(&done);
    }
    Ok(as_json(&size, &done))
}
