//! E1, page pools under pressure: hundreds of volumes attached to one server, I/O on all of them, a program that needs
//! memory in the same cgroup; the pages swapped in and out, by how long weir-nbd squeezes its pools, and of other servers.

mod load;
mod measure;
mod report;

use crate::harness::args::RunArgs;
use crate::harness::{cgroup, fio, nbd_servers, programs};
use crate::peers::Allocator;
use load::Size;
use measure::Subject;
use serde_json::Value;

/// Runs it and prints its tables.
pub fn run(args: &RunArgs, _allocators: Vec<Allocator>) -> Result<Value, String> {
    let subjects = chosen(&args.only)?;
    let mut missing: Vec<String> = programs::missing_root("cgroups and swap need it").into_iter().collect();
    missing.extend(programs::missing(&[fio::PROGRAM]));
    missing.extend(nbd_servers::Kind::Weir.missing());
    missing.extend(cgroup::version().err());
    if !missing.is_empty() {
        println!("e1 is skipped. What is missing:\n\n- {}\n", missing.join("\n- "));
        return Ok(serde_json::json!({ "skipped": missing }));
    }
    let (here, absent): (Vec<_>, Vec<_>) = subjects.into_iter().partition(|subject| subject.kind.missing().is_none());
    absent.iter().filter_map(|subject| subject.kind.missing()).for_each(|what| println!("left out: {what}\n"));
    let _lock = crate::harness::exclusive::lock()?;
    let size = if args.quick { Size::QUICK } else { Size::FULL };
    let done = measure::all(&args.swap_dir, args.rounds, &size, &here)?;
    report::print(&size, &done);
    Ok(report::as_json(&size, &done))
}

fn chosen(only: &[String]) -> Result<Vec<Subject>, String> {
    if let Some(unknown) = only.iter().find(|name| measure::SUBJECTS.iter().all(|subject| subject.name != **name)) {
        let known: Vec<_> = measure::SUBJECTS.iter().map(|subject| subject.name).collect();
        return Err(format!("'{unknown}' is no part of e1: there are {}", known.join(", ")));
    }
    let is_asked = |subject: &&Subject| only.is_empty() || only.iter().any(|name| name == subject.name);
    Ok(measure::SUBJECTS.iter().filter(is_asked).copied().collect())
}
