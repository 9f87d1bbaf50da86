//! E13, the total work of two: a program with a cache, in a cgroup with a neighbour whose demand swings between 10 and
//! 90 % of the limit. Weir's evictable cache, which has no size, against caches whose size is fixed.

mod file;
mod measure;
mod outcome;
mod report;
mod subject;

use crate::harness::args::RunArgs;
use crate::harness::cgroup::Cgroup;
use crate::harness::rounds;
use crate::harness::swap;
use crate::peers::Allocator;
use measure::{Setting, as_json, one};
use serde_json::Value;
use subject::subjects;

/// Runs it and prints its table. The allocators play no part: each program has its own linked.
pub fn run(args: &RunArgs, _: Vec<Allocator>) -> Result<Value, String> {
    let mut subjects = subjects(&args.only)?;
    let _lock = crate::harness::exclusive::lock()?;
    let seconds = args.seconds.unwrap_or(if args.quick { 6 } else { 600 });
    let setting = Setting::new(seconds, if args.quick { 64 << 20 } else { 512 << 20 });
    drop(Cgroup::make("trial", setting.limit)?);
    let _swap = swap::make(&args.swap_dir, setting.limit * 2)?;
    let file = file::make(&args.swap_dir, setting.block, setting.blocks)?;
    for (round, chosen) in rounds::of(args.rounds, subjects.len()) {
        let subject = &mut subjects[chosen];
        eprintln!("e13, round {} of {}: {}", round + 1, args.rounds, subject.label);
        let ran = one(subject, &setting, file.path())?;
        subject.runs.push(ran);
    }
    report::print(&subjects, &setting);
    Ok(as_json(&subjects, &setting, args.quick))
}
