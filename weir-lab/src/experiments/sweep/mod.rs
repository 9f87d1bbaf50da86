//! E11, the sweep: what a free and a malloc cost at every size from 8 B to 64 MiB, so that no cliff stays unseen.

mod measure;
mod picture;
mod report;

use crate::harness::args::RunArgs;
use crate::harness::rounds;
use crate::peers::Allocator;
use measure::{Curve, PATTERNS, as_json, measure, settings};
use serde_json::Value;

/// Runs it, prints its tables and draws its picture.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    if let Some(unknown) = args.only.iter().find(|only| !PATTERNS.contains(&only.as_str())) {
        return Err(format!("'{unknown}' is no pattern of the sweep: there are {}", PATTERNS.join(", ")));
    }
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
    Ok(as_json(&names, &args.subject, runs, &curves))
}
