//! E6, what reporting costs: page_fault1 written anew, tasks as processes and as threads, reporting off and on.
//!
//! A task maps 128 MiB, writes to every page and unmaps it, as one block, which the heap maps on its own, and as
//! blocks of 1 MiB, which are the heap's own pages and so what it reports. A third part lets the task pause between its
//! rounds, so that what it freed really is reported before it comes back.

mod document;
mod huge_page_counts;
mod measure;
mod report;

use crate::harness::args::RunArgs;
use crate::peers::Allocator;
use measure::{FORMS, as_json, measure_form, pauses};
use serde_json::Value;

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let subject = allocators.iter().find(|allocator| allocator.name == args.subject);
    let subject = subject.ok_or_else(|| format!("{} is not here: see `weir-lab list`", args.subject))?;
    let parts = ["one-block", "blocks", "pauses", "huge"];
    if let Some(unknown) = args.only.iter().find(|only| !parts.contains(&only.as_str())) {
        return Err(format!("'{unknown}' is no part of e6: there are {}", parts.join(", ")));
    }
    let asked = |part: &str| args.only.is_empty() || args.only.iter().any(|only| only == part);
    let rounds = args.rounds;
    let mut points = Vec::new();
    for (part, form) in [("one-block", FORMS[0]), ("blocks", FORMS[1])] {
        if asked(part) {
            points.extend(measure_form(subject, form, rounds, args.quick)?);
        }
    }
    let pauses = if asked("pauses") { pauses(subject, rounds.min(5), args.quick)? } else { Vec::new() };
    let huge = if asked("huge") { huge_page_counts::run(subject, args.quick)? } else { Vec::new() };
    report::print(&points, &pauses, &huge);
    Ok(as_json(&points, &pauses, &huge))
}
