//! The soak: everything at once for long, under pressure. Threads allocate, resize and pass on; buffers grow; streams
//! are written, read and flushed; children are forked; signals come in. Meanwhile pressure events come every 50 ms by
//! systemd's protocol, the group's limit is met, and the process is moved between groups; huge pages are `madvise` and
//! `always`. It looks for corruption, for what stands still, and for a resident set that grows from cycle to cycle.

mod measure;
mod program;
mod report;

use crate::harness::args::RunArgs;
use crate::harness::cgroup::Cgroup;
use crate::harness::huge_pages;
use crate::peers::Allocator;
use measure::{LIMIT, Phase, can_have, phase};
use program::KINDS;
use serde_json::{Value, json};
use std::time::Duration;

/// Runs it and prints its table.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let subject = allocators.iter().find(|allocator| allocator.name == args.subject);
    let subject = subject.ok_or_else(|| format!("'{}' is not here", args.subject))?;
    let seconds = args.minutes.map_or(if args.quick { 20 } else { 30 * 60 }, |minutes| u64::from(minutes) * 60);
    let groups = [0, 1].map(|i| Cgroup::make(&format!("soak-{i}"), LIMIT));
    let groups = match groups {
        [Ok(a), Ok(b)] => Some([a, b]),
        [Err(why), _] | [_, Err(why)] => {
            println!("Without groups: {why}.\n");
            None
        }
    };
    let words: Vec<&str> = ["madvise", "always"].into_iter().filter(|word| can_have(word)).collect();
    let time = Duration::from_secs(seconds) / words.len().max(1) as u32;
    let mut phases = Vec::new();
    for word in words {
        eprintln!("soak, huge pages {word}: {} s", time.as_secs());
        let guard = if huge_pages::found()? == word { None } else { Some(huge_pages::set(word)?) };
        phases.push(phase(args, subject, word, groups.as_ref(), time)?);
        drop(guard);
    }
    report::print(&phases);
    Ok(as_json(&phases))
}

fn as_json(phases: &[Phase]) -> Value {
    let phase = |phase: &Phase| {
        let done: serde_json::Map<_, _> =
            KINDS.iter().map(|kind| kind.to_string()).zip(phase.done.map(Value::from)).collect();
        let verdict = report::verdict(phase);
        json!({ "thp": phase.thp, "done": done, "events": phase.events, "squeezes": phase.squeezes,
                "moves": phase.moves, "resident": phase.resident, "verdict": verdict.word, "why": verdict.why })
    };
    let verdicts = phases.iter().map(|phase| (phase, report::verdict(phase)));
    let failed = verdicts.into_iter().find(|(_, verdict)| !verdict.is_sound());
    let failed = failed.map(|(phase, verdict)| format!("huge pages {}: {}: {}", phase.thp, verdict.word, verdict.why));
    json!({ "phases": phases.iter().map(phase).collect::<Vec<_>>(), "failed": failed })
}
