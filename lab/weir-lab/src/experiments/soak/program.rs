//! The running program of the soak: its output line by line, whether it still makes progress, and where its threads wait
//! if it does not.

use crate::harness::child::KilledOnDrop;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What it counts, as it names them.
pub const KINDS: [&str; 5] = ["blocks", "growths", "streams", "forks", "signals"];

/// Why it did not go on.
#[derive(Debug)]
pub enum SoakFailure {
    /// A check failed or a signal ended it: its message, or the signal.
    Corrupt(String),
    /// Something stood still for too long: what, and where the threads wait.
    Hung(String),
    /// It could not be run to its end.
    Failed(String),
}

/// The program, in a process group of its own, as it forks.
pub struct SoakProgram {
    child: KilledOnDrop,
    /// The beginning of a line.
    line: Vec<u8>,
    /// How often each kind was done.
    pub done: [u64; KINDS.len()],
    moved: [Instant; KINDS.len()],
    patience: Duration,
}

impl SoakProgram {
    /// Starts it; a kind that stands still for longer than `patience` hangs.
    pub fn start(mut command: Command, patience: Duration) -> Result<SoakProgram, String> {
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = KilledOnDrop::start(command, "weir-lab-load")?;
        if let Some(pipe) = &child.0.stdout {
            // SAFETY: a flag of this process's end of the pipe.
            unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        }
        let moved = [Instant::now(); KINDS.len()];
        Ok(SoakProgram { child, line: Vec::new(), done: [0; KINDS.len()], moved, patience })
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Reads its output so far; returns whether a cycle has ended.
    pub fn listen(&mut self) -> Result<bool, SoakFailure> {
        let mut buffer = [0u8; 4096];
        loop {
            let pipe = self.child.0.stdout.as_mut().ok_or(SoakFailure::Failed("its output is closed".into()))?;
            match pipe.read(&mut buffer) {
                Ok(0) => return Err(self.ended()),
                Ok(count) => self.line.extend_from_slice(&buffer[..count]),
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) => return Err(SoakFailure::Failed(format!("cannot read its output: {why}"))),
            }
        }
        let mut cycle = false;
        while let Some(end) = self.line.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            cycle |= self.take_line(&line)?;
        }
        match self.stuck() {
            Some(what) if !cycle => Err(SoakFailure::Hung(what)),
            _ => Ok(cycle),
        }
    }

    fn take_line(&mut self, line: &[u8]) -> Result<bool, SoakFailure> {
        let said: Value = serde_json::from_slice(line)
            .map_err(|_| SoakFailure::Failed(format!("it said '{}'", String::from_utf8_lossy(line).trim())))?;
        let cycle = said["line"] == "cycle";
        for ((kind, done), moved) in KINDS.iter().zip(&mut self.done).zip(&mut self.moved) {
            let now = said[kind].as_u64().unwrap_or(0);
            // Between two cycles nothing has to move.
            if now != *done || cycle {
                (*done, *moved) = (now, Instant::now());
            }
        }
        Ok(cycle)
    }

    /// What stands still, and where its threads wait.
    fn stuck(&self) -> Option<String> {
        let stuck: Vec<_> =
            KINDS.iter().zip(&self.moved).filter(|(_, moved)| moved.elapsed() > self.patience).collect();
        let names: Vec<&str> = stuck.iter().map(|(kind, _)| **kind).collect();
        let seconds = self.patience.as_secs();
        (!names.is_empty()).then(|| {
            format!("no {} for {seconds} s; threads wait in: {}", names.join(", no "), waiting_places(self.pid()))
        })
    }

    /// Lets it into its next cycle.
    pub fn go_on(&mut self) -> Result<(), String> {
        self.moved = [Instant::now(); KINDS.len()];
        let pipe = self.child.0.stdin.as_mut().ok_or("its input is closed")?;
        pipe.write_all(b"\n").map_err(|why| format!("the program is gone: {why}"))
    }

    /// Why it ended by itself.
    fn ended(&mut self) -> SoakFailure {
        // Children hold its output open.
        self.kill_group();
        let mut said = String::new();
        let _ = self.child.0.stderr.take().map(|mut pipe| pipe.read_to_string(&mut said));
        let status = self.child.0.wait().ok();
        let said = said.lines().take(3).collect::<Vec<_>>().join("; ");
        match status.and_then(|status| status.signal()) {
            Some(libc::SIGKILL) => SoakFailure::Failed(format!("it was killed (a limit of memory, perhaps) {said}")),
            Some(signal) => SoakFailure::Corrupt(format!("it died of signal {signal}: {said}")),
            None => SoakFailure::Failed(format!("it ended before its time: {said}")),
        }
    }

    fn kill_group(&self) {
        // SAFETY: the group of a child that has not been waited for, so that no other process has its number.
        unsafe { libc::kill(-(self.pid() as libc::pid_t), libc::SIGKILL) };
    }
}

impl Drop for SoakProgram {
    fn drop(&mut self) {
        self.kill_group();
    }
}

/// The functions of the kernel that a process's threads wait in, by the threads' names.
fn waiting_places(pid: u32) -> String {
    let mut places = BTreeMap::<(String, String), u32>::new();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let text = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let place = text("wchan");
        let place = if place.is_empty() || place == "0" { "user space".into() } else { place };
        *places.entry((text("comm").trim().into(), place)).or_default() += 1;
    }
    let place = |((name, place), count): (&(String, String), &u32)| format!("{name} {place} ({count})");
    places.iter().map(place).collect::<Vec<_>>().join(", ")
}
