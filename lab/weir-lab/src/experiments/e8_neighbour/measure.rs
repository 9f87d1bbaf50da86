//! What is run, and the rows that come of it.

use super::process::{EventRun, HogRun, IdleRun, Setting, hog, idle, told_by_cgroup, told_by_fifo};
use crate::harness::args::RunArgs;
use crate::harness::cgroup::Cgroup;
use crate::harness::huge_pages;
use crate::harness::json::by_name;
use crate::harness::proc_files::ProcessMemory;
use crate::harness::swap;
use crate::peers::Allocator;
use serde_json::{Value, json};

/// All runs of one allocator under one setting of huge pages.
#[derive(Default)]
pub struct Runs {
    /// A idle, with no limit anywhere.
    pub free: Vec<IdleRun>,
    /// A idle, then with B.
    pub idle: Vec<IdleRun>,
    /// Pressure by FIFO.
    pub fifo: Vec<EventRun>,
    /// Pressure by the cgroup's limit.
    pub cgroup: Vec<EventRun>,
    /// Why it could not go on.
    pub failed: Option<String>,
}

/// The runs under one setting of huge pages.
pub struct HugePageSetting {
    /// The kernel's word for the setting.
    pub thp: String,
    /// B with the cgroup to itself.
    pub alone: Vec<HogRun>,
    /// In the allocators' order.
    pub runs: Vec<Runs>,
}

/// As found, and `always` unless that was found. The quick run is for what is found alone.
pub(super) fn thp_settings(quick: bool) -> Result<Vec<String>, String> {
    let found = huge_pages::found()?;
    let always = (found != "always" && !quick).then(|| "always".to_string());
    if always.is_some() && huge_pages::set("always").is_err() {
        println!("Huge pages stay at '{found}': setting them needs root.\n");
        return Ok(vec![found]);
    }
    Ok(std::iter::once(found).chain(always).collect())
}

/// Swap, and a cgroup to share: both or none.
pub(super) fn shared_memory(
    args: &RunArgs,
    setting: &Setting,
) -> Result<crate::harness::restore::RestoreGuard, String> {
    drop(Cgroup::make("trial", setting.limit())?);
    swap::make(&args.swap_dir, setting.bytes * 2)
}

/// Rounds in which every allocator has its turn.
pub(super) fn part(
    thp: &str,
    allocators: &[Allocator],
    setting: &Setting,
    rounds: u32,
    shared: bool,
) -> Result<HugePageSetting, String> {
    let runs = allocators.iter().map(|_| Runs::default()).collect();
    let mut part = HugePageSetting { thp: thp.into(), alone: Vec::new(), runs };
    for round in 0..rounds as usize {
        if shared {
            part.alone.push(hog(setting, &Cgroup::make("alone", setting.limit())?)?);
        }
        for turn in 0..allocators.len() {
            let chosen = (round + turn) % allocators.len();
            let (allocator, runs) = (&allocators[chosen], &mut part.runs[chosen]);
            eprintln!("e8, huge pages {thp}, round {} of {rounds}: {}", round + 1, allocator.name);
            if runs.failed.is_none()
                && let Err(why) = one_round(allocator, setting, shared, runs)
            {
                eprintln!("{}: {why}", allocator.name);
                runs.failed = Some(why);
            }
        }
    }
    Ok(part)
}

fn one_round(allocator: &Allocator, setting: &Setting, shared: bool, runs: &mut Runs) -> Result<(), String> {
    runs.free.push(idle(allocator, setting, None)?);
    let shared = shared.then(|| Cgroup::make("neighbour", setting.limit())).transpose()?;
    runs.idle.push(idle(allocator, setting, shared.as_ref())?);
    runs.fifo.push(told_by_fifo(allocator, setting)?);
    if shared.is_some() {
        drop(shared);
        runs.cgroup.push(told_by_cgroup(allocator, setting)?);
    }
    Ok(())
}

pub(super) fn as_json(names: &[&str], subject: &str, setting: &Setting, parts: &[HugePageSetting]) -> Value {
    let memory = |m: &ProcessMemory| json!({ "rss": m.rss, "swap": m.swap, "huge": m.huge });
    let hog =
        |hog: &HogRun| json!({ "turns_s": hog.turns, "pswpin": hog.swap.pages_in, "pswpout": hog.swap.pages_out });
    let idle = |run: &IdleRun| {
        json!({ "peak": run.peak, "free_s": run.free_seconds, "live": run.live,
                "looks": run.looks.iter().map(memory).collect::<Vec<_>>(), "b": run.hog.as_ref().map(hog) })
    };
    let event = |run: &EventRun| json!({ "heard": run.heard, "held": run.held.iter().map(memory).collect::<Vec<_>>() });
    let runs = |runs: &Runs| {
        json!({ "idle": runs.idle.iter().map(idle).collect::<Vec<_>>(),
                "idle_without_a_limit": runs.free.iter().map(idle).collect::<Vec<_>>(),
                "fifo": runs.fifo.iter().map(event).collect::<Vec<_>>(),
                "cgroup": runs.cgroup.iter().map(event).collect::<Vec<_>>(), "failed": runs.failed })
    };
    let part_json = |part: &HugePageSetting| {
        let all = by_name(names, &part.runs, runs);
        json!({ "thp": part.thp, "alone": part.alone.iter().map(hog).collect::<Vec<_>>(), "runs": all })
    };
    let at = names.iter().position(|name| *name == subject);
    let failed = at.and_then(|at| parts.iter().find_map(|part| part.runs[at].failed.clone()));
    json!({ "bytes": setting.bytes, "mix": setting.mix, "looks_s": setting.looks,
            "looks_without_a_limit_s": setting.free_looks,
            "parts": parts.iter().map(part_json).collect::<Vec<_>>(), "failed": failed })
}
