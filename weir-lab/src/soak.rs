//! The soak: everything at once for long, under pressure. Threads allocate, resize and hand on; buffers grow; streams
//! are written, read and flushed; children are forked; signals come in. Meanwhile pressure events come every 50 ms by
//! systemd's protocol, the group's limit is met, and the process is moved between groups; huge pages are `madvise` and
//! `always`. It looks for corruption, for what stands still, and for a resident set that grows from cycle to cycle.

use crate::RunArgs;
use crate::cgroup::Cgroup;
use crate::child;
use crate::fifo::{Fifo, tell};
use crate::peers::Allocator;
use crate::soak_report;
use crate::soaked::{Ended, KINDS, Soaked};
use crate::thp;
use serde_json::{Value, json};
use std::fs::File;
use std::time::{Duration, Instant};

/// Between two pressure events.
const EVENT_GAP: Duration = Duration::from_millis(50);
/// Of so many pressure events one is of the group's limit, and one a move to the other group besides.
const SQUEEZE: u64 = 4;
const MOVE: u64 = 20;
/// The limit of each group, several times what the program holds.
const LIMIT: u64 = 1 << 30;
/// Cycles of a phase's second half that tell whether it grows.
pub const ENOUGH: usize = 5;

/// What is done with huge pages set to a word.
pub struct Phase {
    /// The word, and whether it was set or found.
    pub thp: String,
    /// How often each kind was done.
    pub done: [u64; KINDS.len()],
    /// Events that somebody heard by the FIFO.
    pub events: u64,
    /// How often the kernel looked for memory in the group.
    pub squeezes: u64,
    /// Moves to the other group.
    pub moves: u64,
    /// The resident set at the end of each cycle, where nothing is held, bytes.
    pub resident: Vec<f64>,
    /// Why it did not go on.
    pub ended: Option<Ended>,
}

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
        let guard = if thp::found()? == word { None } else { Some(thp::set(word)?) };
        phases.push(phase(args, subject, word, groups.as_ref(), time)?);
        drop(guard);
    }
    soak_report::print(&phases);
    Ok(as_json(&phases))
}

/// Whether huge pages are set to `word`, or can be.
fn can_have(word: &str) -> bool {
    let found = thp::found().unwrap_or_default();
    if found == word || thp::set(word).is_ok() {
        return true;
    }
    println!("Without huge pages '{word}', which needs root to be set; they are '{found}'.\n");
    false
}

fn phase(
    args: &RunArgs,
    subject: &Allocator,
    word: &str,
    groups: Option<&[Cgroup; 2]>,
    time: Duration,
) -> Result<Phase, String> {
    let fifo = Fifo::make()?;
    let mut command = child::command(child::load_program()?, subject);
    // Short cycles where there is little time, so that there are enough of them.
    let (work, rest, patience) = if args.quick { (600, 200, 8) } else { (3000, 500, 30) };
    command.args(["soak", &format!("work={work}"), &format!("rest={rest}")]);
    command.env("MEMORY_PRESSURE_WATCH", fifo.path());
    let mut soaked = Soaked::start(command, Duration::from_secs(patience))?;
    let mut phase = Phase {
        thp: word.into(),
        done: [0; KINDS.len()],
        events: 0,
        squeezes: 0,
        moves: 0,
        resident: Vec::new(),
        ended: None,
    };
    let mut pressure = Pressure { fifo: &fifo, pipe: None, groups, inside: 0, count: 0 };
    let end = Instant::now() + time;
    loop {
        std::thread::sleep(EVENT_GAP);
        pressure.next(soaked.pid(), &mut phase)?;
        match soaked.listen() {
            Ok(false) => (),
            Ok(true) => {
                phase.resident.push(crate::procfs::memory(soaked.pid())?.rss as f64);
                // Not in the middle of a cycle, which may hang.
                if Instant::now() >= end {
                    break;
                }
                soaked.go_on()?;
            }
            Err(ended) => {
                phase.ended = Some(ended);
                break;
            }
        }
    }
    phase.done = soaked.done;
    Ok(phase)
}

/// What makes memory short.
struct Pressure<'a> {
    fifo: &'a Fifo,
    pipe: Option<File>,
    groups: Option<&'a [Cgroup; 2]>,
    /// In which group the process is.
    inside: usize,
    count: u64,
}

impl Pressure<'_> {
    fn next(&mut self, pid: u32, phase: &mut Phase) -> Result<(), String> {
        self.count += 1;
        if self.pipe.is_none() {
            self.pipe = self.fifo.open();
        }
        phase.events += u64::from(self.pipe.as_mut().is_some_and(tell));
        let Some(groups) = self.groups else { return Ok(()) };
        if self.count % MOVE == 1 {
            self.inside = 1 - self.inside;
            // It may have ended, which is for others to tell.
            phase.moves += u64::from(groups[self.inside].take_in(pid).is_ok());
        }
        if self.count.is_multiple_of(SQUEEZE) {
            groups[self.inside].squeeze(LIMIT)?;
            phase.squeezes += 1;
        }
        Ok(())
    }
}

fn as_json(phases: &[Phase]) -> Value {
    let phase = |phase: &Phase| {
        let done: serde_json::Map<_, _> =
            KINDS.iter().map(|kind| kind.to_string()).zip(phase.done.map(Value::from)).collect();
        let verdict = soak_report::verdict(phase);
        json!({ "thp": phase.thp, "done": done, "events": phase.events, "squeezes": phase.squeezes,
                "moves": phase.moves, "resident": phase.resident, "verdict": verdict.word, "why": verdict.why })
    };
    let verdicts = phases.iter().map(|phase| (phase, soak_report::verdict(phase)));
    let failed = verdicts.into_iter().find(|(_, verdict)| !verdict.is_sound());
    let failed = failed.map(|(phase, verdict)| format!("huge pages {}: {}: {}", phase.thp, verdict.word, verdict.why));
    json!({ "phases": phases.iter().map(phase).collect::<Vec<_>>(), "failed": failed })
}
