//! What is run, and the phases that come of it.

use super::program::{KINDS, SoakFailure, SoakProgram};
use crate::harness::args::RunArgs;
use crate::harness::cgroup::Cgroup;
use crate::harness::child;
use crate::harness::huge_pages;
use crate::harness::pressure_fifo::{PressureFifo, tell};
use crate::peers::Allocator;
use std::fs::File;
use std::time::{Duration, Instant};

/// Between two pressure events.
const EVENT_GAP: Duration = Duration::from_millis(50);
/// Of so many pressure events one is of the group's limit, and one a move to the other group besides.
const SQUEEZE: u64 = 4;
const MOVE: u64 = 20;
/// The limit of each group, several times what the program holds.
pub(super) const LIMIT: u64 = 1 << 30;
/// Cycles of a phase's second half from which growth is judged.
pub const ENOUGH: usize = 5;

/// What is done with huge pages set to a word.
pub struct Phase {
    /// The word, and whether it was set or found.
    pub thp: String,
    /// How often each kind was done.
    pub done: [u64; KINDS.len()],
    /// Events that a reader of the FIFO took.
    pub events: u64,
    /// How often the kernel looked for memory in the group.
    pub squeezes: u64,
    /// Moves to the other group.
    pub moves: u64,
    /// The resident set at the end of each cycle, where nothing is held, bytes.
    pub resident: Vec<f64>,
    /// Why it did not go on.
    pub ended: Option<SoakFailure>,
}

/// Whether huge pages are set to `word`, or can be.
pub(super) fn can_have(word: &str) -> bool {
    let found = huge_pages::found().unwrap_or_default();
    if found == word || huge_pages::set(word).is_ok() {
        return true;
    }
    println!("Without huge pages '{word}', which needs root to be set; they are '{found}'.\n");
    false
}

pub(super) fn phase(
    args: &RunArgs,
    subject: &Allocator,
    word: &str,
    groups: Option<&[Cgroup; 2]>,
    time: Duration,
) -> Result<Phase, String> {
    let fifo = PressureFifo::make()?;
    let mut command = child::command(child::load_program()?, subject);
    // Short cycles where there is little time, so that there are enough of them.
    let (work, rest, patience) = if args.quick { (600, 200, 8) } else { (3000, 500, 30) };
    command.args(["soak", &format!("work={work}"), &format!("rest={rest}")]);
    command.env("MEMORY_PRESSURE_WATCH", fifo.path());
    let mut soaked = SoakProgram::start(command, Duration::from_secs(patience))?;
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
                phase.resident.push(crate::harness::proc_files::memory(soaked.pid())?.rss as f64);
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
    fifo: &'a PressureFifo,
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
            // It may have ended, which `listen` reports.
            phase.moves += u64::from(groups[self.inside].take_in(pid).is_ok());
        }
        if self.count.is_multiple_of(SQUEEZE) {
            groups[self.inside].squeeze(LIMIT)?;
            phase.squeezes += 1;
        }
        Ok(())
    }
}
