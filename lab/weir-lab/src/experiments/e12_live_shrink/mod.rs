//! E12, a live container shrinks below its peak: programs that have peaked and idle get a limit of 1.2 times what they
//! have in use, in a guest with cgroup v2.

mod files;
mod measure;
mod report;

use crate::guest::{self, kernel};
use crate::harness::args::RunArgs;
use crate::harness::swap;
use crate::peers::Allocator;
use files::PROGRAMS;
use measure::{Setting, as_json, one};
use serde_json::Value;

/// Runs it and prints its table.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    if let Some(unknown) = args.only.iter().find(|only| PROGRAMS.iter().all(|program| program.name != **only)) {
        let names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        return Err(format!("'{unknown}' is no program of e12: there are {}", names.join(", ")));
    }
    let setting = Setting { rounds: args.rounds, mib: 8 };
    let (emulator, kernel) = (guest::emulator()?, kernel::find()?);
    let (disk, _disk_is_removed) = swap::make_for_guest(setting.swap())?;
    println!(
        "A guest of {emulator}, software emulation, Linux {}, cgroup v2, {} MiB, one CPU.\n",
        kernel.release,
        setting.guest_mib()
    );
    let mut rows = Vec::new();
    for program in PROGRAMS {
        if !args.only.is_empty() && !args.only.iter().any(|only| only == program.name) {
            continue;
        }
        if let Err(why) = (program.here)() {
            println!("{} is left out: {why}.\n", program.name);
            continue;
        }
        for allocator in &allocators {
            eprintln!("e12, {}: {}", program.name, allocator.name);
            rows.extend(one(program, allocator, &setting, (&kernel, &disk)));
        }
    }
    if rows.is_empty() {
        return Err("no program of e12 is here".into());
    }
    report::print(&rows, &setting);
    Ok(as_json(&rows, &setting))
}
