//! E5, density: tenants that each once needed most of their memory and idle. How many fit into a cgroup three of them
//! wide before it first swaps, and what a need of the whole memory takes the third of them.
//!
//! The tenants are processes of this machine, and guests under software emulation whose balloon reports free pages.

mod measure;
mod report;
mod tenant;

use crate::harness::args::RunArgs;
use crate::harness::cgroup::Cgroup;
use crate::harness::swap;
use crate::peers::Allocator;
use measure::{PARTS, as_json, part, place};
use serde_json::Value;

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let (only_parts, only_sides): (Vec<&str>, Vec<&str>) =
        args.only.iter().map(String::as_str).partition(|only| PARTS.contains(only));
    if let Some(unknown) = only_sides.iter().find(|name| allocators.iter().all(|allocator| allocator.name != **name)) {
        return Err(format!("'{unknown}' is no part of e5 and no allocator: there are {}", PARTS.join(", ")));
    }
    let allocators: Vec<Allocator> = match only_sides.is_empty() {
        true => allocators,
        false => allocators.into_iter().filter(|allocator| only_sides.contains(&allocator.name.as_str())).collect(),
    };
    let _lock = crate::harness::exclusive::lock()?;
    drop(Cgroup::make("trial", 64 << 20)?);
    let sizes = if args.quick { [96, 512] } else { [512, 1024] };
    let _swap = swap::make(&args.swap_dir, 3 * (sizes[usize::from(!args.quick)] << 20))?;
    let mut parts = Vec::new();
    for name in PARTS {
        // The quick run is of processes alone.
        let asked = if only_parts.is_empty() { !args.quick || !name.contains("guests") } else { false };
        if !asked && !only_parts.contains(&name) {
            continue;
        }
        let size: u64 = sizes[usize::from(name.contains("guests"))];
        let place = match place(name, size) {
            Ok(place) => place,
            Err(why) => {
                println!("{name} is left out: {why}.\n");
                continue;
            }
        };
        let part = part(name, &place, size << 20, &allocators, args)?;
        report::print(&part);
        parts.push(part);
    }
    Ok(as_json(&parts))
}
