//! E8, the neighbour: a process that once peaked and idles, and another in its cgroup that needs the memory.

mod measure;
mod process;
mod report;

use crate::harness::args::RunArgs;
use crate::harness::huge_pages;
use crate::peers::Allocator;
use measure::{as_json, part, shared_memory, thp_settings};
use process::Setting;
use serde_json::Value;

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let _lock = crate::harness::exclusive::lock()?;
    let rounds = args.rounds;
    let (bytes, looks) = if args.quick { (256 << 20, vec![0.1, 1.0]) } else { (1 << 30, vec![0.1, 1.0, 10.0]) };
    let free_looks = looks.iter().copied().chain(args.later.map(f64::from)).collect();
    let setting = Setting { bytes, mix: args.mix.clone(), looks, free_looks };
    let swap = shared_memory(args, &setting);
    if let Err(why) = &swap {
        println!("The neighbour and the pressure of a cgroup are left out: {why}.\n");
    }
    let mut parts = Vec::new();
    for word in thp_settings(args.quick)? {
        let _guard = if word == huge_pages::found()? { None } else { Some(huge_pages::set(&word)?) };
        parts.push(part(&word, &allocators, &setting, rounds, swap.is_ok())?);
    }
    let names: Vec<&str> = allocators.iter().map(|allocator| allocator.name.as_str()).collect();
    report::print(&names, &args.subject, &setting, &parts);
    Ok(as_json(&names, &args.subject, &setting, &parts))
}
