//! E11, the sweep: what a free and a malloc cost at every size from 8 B to 64 MiB, so that no cliff stays unseen.
//!
//! A part of its own, which the gate runs, counts the subject's instructions (`instructions.rs`) and fails where neighbouring
//! sizes differ by 3 times and no row of `known.rs` says so.

#[cfg(target_arch = "x86_64")]
mod cliffs;
#[cfg(target_arch = "x86_64")]
mod gate;
#[cfg(target_arch = "x86_64")]
mod instructions;
#[cfg(target_arch = "x86_64")]
mod known;
mod measure;
mod picture;
mod report;

use crate::harness::args::RunArgs;
use crate::harness::rounds;
use crate::peers::Allocator;
use measure::{Curve, PATTERNS, as_json, measure, settings};
use serde_json::Value;

/// The part that counts instructions.
const INSTRUCTIONS: &str = "instructions";

/// Runs it, prints its tables and draws its picture.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let known = |only: &&String| *only == INSTRUCTIONS || PATTERNS.contains(&only.as_str());
    if let Some(unknown) = args.only.iter().find(|only| !known(only)) {
        return Err(format!(
            "'{unknown}' is no pattern of the sweep: there are {INSTRUCTIONS}, {}",
            PATTERNS.join(", ")
        ));
    }
    let judged = judge(args, &allocators)?;
    let runs = args.rounds;
    let mut curves = Vec::new();
    for setting in settings(args.quick, &args.only) {
        eprintln!("sweep: {} on {} thread(s), {runs} rounds", setting.pattern, setting.threads);
        let mut of: Vec<Curve> = allocators.iter().map(|_| Curve::default()).collect();
        for (_, chosen) in rounds::of(runs, allocators.len()) {
            let curve = &mut of[chosen];
            if curve.failed.is_none()
                && let Err(why) = measure(&setting, &allocators[chosen], curve)
            {
                eprintln!("{}: {why}", allocators[chosen].name);
                curve.failed = Some(why);
            }
        }
        curves.push((setting, of));
    }
    let names: Vec<&str> = allocators.iter().map(|allocator| allocator.name.as_str()).collect();
    report::print(&names, &args.subject, &curves);
    if let Some(path) = &args.svg {
        picture::draw(path, &names, &curves).map_err(|why| format!("cannot draw {}: {why}", path.display()))?;
    }
    let mut result = as_json(&names, &args.subject, runs, &curves);
    if let Some((counted, failed)) = judged {
        result[INSTRUCTIONS] = counted;
        if result["failed"].is_null() {
            result["failed"] = failed.into();
        }
    }
    Ok(result)
}

/// What the subject takes by instructions, and what is wrong with it; none if that is not asked for, or the machine's
/// processor is one that is not stepped through.
#[cfg(target_arch = "x86_64")]
fn judge(args: &RunArgs, allocators: &[Allocator]) -> Result<Option<(Value, Option<String>)>, String> {
    let subject = allocators.iter().find(|allocator| allocator.name == args.subject);
    let is_asked = args.only.is_empty() || args.only.iter().any(|only| only == INSTRUCTIONS);
    let Some(subject) = subject.filter(|_| is_asked) else { return Ok(None) };
    let judged = gate::judge(subject)?;
    let by_pattern = judged.counted.into_iter().map(|(pattern, series)| {
        let points: Vec<(u64, f64)> = series.into_iter().collect();
        (pattern.to_string(), serde_json::json!(points))
    });
    Ok(Some((Value::Object(by_pattern.collect()), judged.failed)))
}

#[cfg(not(target_arch = "x86_64"))]
fn judge(_: &RunArgs, _: &[Allocator]) -> Result<Option<(Value, Option<String>)>, String> {
    Ok(None)
}
