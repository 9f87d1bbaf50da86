//! A load program that runs in phases: it prints a line of JSON after each, and waits for a byte before the next.

use crate::harness::cgroup::{Cgroup, enter};
use crate::harness::child::{KilledOnDrop, command, load_program, wait_readable};
use crate::harness::proc_files::{ProcessMemory, memory};
use crate::peers::Allocator;
use serde_json::Value;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PHASE_LIMIT: Duration = Duration::from_secs(120);

/// Sleeps until `seconds` after `since`.
pub fn sleep_until(since: Instant, seconds: f64) {
    std::thread::sleep((since + Duration::from_secs_f64(seconds)).saturating_duration_since(Instant::now()));
}

/// The command of a load program under an allocator.
pub fn load(allocator: &Allocator, words: &[String]) -> Result<Command, String> {
    let mut start = command(load_program()?, allocator);
    start.args(words);
    Ok(start)
}

/// Such a program under way.
pub struct PhasedProgram {
    child: KilledOnDrop,
    name: String,
    /// The line of its last phase.
    pub said: Value,
    /// When its last phase ended.
    pub since: Instant,
}

impl PhasedProgram {
    /// Starts it, called `name` in messages, in a cgroup if one is given, and waits for the end of its first phase.
    pub fn start(name: &str, mut start: Command, cgroup: Option<&Cgroup>) -> Result<PhasedProgram, String> {
        if let Some(cgroup) = cgroup {
            enter(&mut start, cgroup);
        }
        start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = KilledOnDrop::start(start, name)?;
        let mut phased = PhasedProgram { child, name: name.into(), said: Value::Null, since: Instant::now() };
        phased.listen()?;
        Ok(phased)
    }

    /// Lets it into its next phase; returns when that has ended.
    pub fn next_phase(&mut self) -> Result<(), String> {
        let pipe = self.child.0.stdin.as_mut().ok_or("its input is closed")?;
        pipe.write_all(b"\n").map_err(|why| format!("{} is gone: {why}", self.name))?;
        self.listen()
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// What it occupies now.
    pub fn memory(&self) -> Result<ProcessMemory, String> {
        memory(self.child.0.id())
    }

    /// What it occupies at `seconds` after its last phase.
    pub fn memory_at(&self, seconds: f64) -> Result<ProcessMemory, String> {
        sleep_until(self.since, seconds);
        self.memory()
    }

    /// A number of that line.
    pub fn number(&self, key: &str) -> Result<f64, String> {
        self.said[key].as_f64().ok_or_else(|| format!("{} did not say '{key}'", self.name))
    }

    /// Reads its next line.
    fn listen(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PHASE_LIMIT;
        let pipe = self.child.0.stdout.as_mut().ok_or("its output is closed")?;
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            wait_readable(pipe, deadline).map_err(|why| format!("{}: {why}", self.name))?;
            let mut byte = [0u8];
            if pipe.read(&mut byte).unwrap_or(0) == 0 {
                return Err(format!("{} ended before its time", self.name));
            }
            line.push(byte[0]);
        }
        self.since = Instant::now();
        self.said = serde_json::from_slice(&line).map_err(|why| format!("{} said nonsense: {why}", self.name))?;
        Ok(())
    }
}
