//! One run of E8: process A under an allocator, led through its phases and watched from outside.

use crate::cgroup::Cgroup;
use crate::child::{Kept, command, load_program, wait_readable};
use crate::fifo::Fifo;
use crate::peers::Allocator;
use crate::procfs::{Memory, SwapTraffic, memory};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How large, and when A is looked at.
pub struct Setting {
    /// A's peak, and what B needs.
    pub bytes: u64,
    /// `even-counts` or `even-bytes`.
    pub mix: String,
    /// Seconds after the frees at which A's resident set is read.
    pub looks: Vec<f64>,
}

impl Setting {
    /// The cgroup's limit: 1.2 times what each of the two needs.
    pub fn limit(&self) -> u64 {
        self.bytes * 12 / 10
    }
}

const PHASE_LIMIT: Duration = Duration::from_secs(120);

/// A under way.
pub struct Neighbour {
    child: Kept,
    /// What A said of its last phase.
    pub said: Value,
    /// When its last phase ended.
    pub since: Instant,
}

impl Neighbour {
    /// Starts A and waits until all its blocks are allocated and written.
    pub fn peak(
        allocator: &Allocator,
        setting: &Setting,
        cgroup: Option<&Cgroup>,
        watch: Option<&Path>,
    ) -> Result<Neighbour, String> {
        let mut start = command(load_program()?, allocator);
        start.args(["neighbour", &format!("bytes={}", setting.bytes), &format!("mix={}", setting.mix)]);
        if let Some(fifo) = watch {
            start.env("MEMORY_PRESSURE_WATCH", fifo);
        }
        join(&mut start, cgroup);
        start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = Kept(start.spawn().map_err(|why| format!("cannot start A: {why}"))?);
        let mut neighbour = Neighbour { child, said: Value::Null, since: Instant::now() };
        neighbour.listen()?;
        Ok(neighbour)
    }

    /// Lets A free; returns when it has.
    pub fn free(&mut self) -> Result<(), String> {
        let pipe = self.child.0.stdin.as_mut().ok_or("A's input is closed")?;
        pipe.write_all(b"\n").map_err(|why| format!("A is gone: {why}"))?;
        self.listen()
    }

    /// What A occupies now.
    pub fn memory(&self) -> Result<Memory, String> {
        memory(self.child.0.id())
    }

    /// What A occupies at `seconds` after its last phase.
    pub fn memory_at(&self, seconds: f64) -> Result<Memory, String> {
        let moment = self.since + Duration::from_secs_f64(seconds);
        std::thread::sleep(moment.saturating_duration_since(Instant::now()));
        self.memory()
    }

    /// A number that A said.
    pub fn number(&self, key: &str) -> Result<f64, String> {
        self.said[key].as_f64().ok_or_else(|| format!("A did not say '{key}'"))
    }

    /// Reads A's next line.
    fn listen(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PHASE_LIMIT;
        let pipe = self.child.0.stdout.as_mut().ok_or("A's output is closed")?;
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            wait_readable(pipe, deadline).map_err(|why| format!("A: {why}"))?;
            let mut byte = [0u8];
            if pipe.read(&mut byte).unwrap_or(0) == 0 {
                return Err("A ended before its time".into());
            }
            line.push(byte[0]);
        }
        self.since = Instant::now();
        self.said = serde_json::from_slice(&line).map_err(|why| format!("A said nonsense: {why}"))?;
        Ok(())
    }
}

/// Makes the child enter the cgroup before it becomes its program.
fn join(command: &mut Command, cgroup: Option<&Cgroup>) {
    let Some(cgroup) = cgroup else { return };
    let door = std::ffi::CString::new(cgroup.door().into_os_string().into_encoded_bytes()).unwrap_or_default();
    // SAFETY: between fork and exec only system calls are made: open, write, close.
    unsafe {
        command.pre_exec(move || {
            let fd = libc::open(door.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            // "0" is the writing process itself, in both versions.
            if fd < 0 || libc::write(fd, c"0".as_ptr().cast(), 1) != 1 {
                return Err(std::io::Error::last_os_error());
            }
            libc::close(fd);
            Ok(())
        });
    }
}

/// What B took.
#[derive(Clone, Debug, Default)]
pub struct Hog {
    /// Seconds of each of its turns.
    pub turns: Vec<f64>,
    /// Swap traffic of the machine while it ran.
    pub swap: SwapTraffic,
}

/// Runs B in the cgroup: it needs the bytes twice, one time after the other.
pub fn hog(setting: &Setting, cgroup: &Cgroup) -> Result<Hog, String> {
    let plain = Allocator { name: "B".into(), preload: None, version: String::new(), env: &[] };
    let mut start = command(load_program()?, &plain);
    start.args(["hog", &format!("bytes={}", setting.bytes), "times=2"]);
    join(&mut start, Some(cgroup));
    let before = SwapTraffic::now()?;
    let finished = crate::child::run(start, PHASE_LIMIT * 4, "B")?;
    let swap = SwapTraffic::now()?.since(before);
    let said: Value = serde_json::from_str(finished.output.trim()).map_err(|why| format!("B said nonsense: {why}"))?;
    let turns = said["turns_ns"].as_array().ok_or("B said no times")?;
    Ok(Hog { turns: turns.iter().filter_map(|ns| Some(ns.as_f64()? / 1e9)).collect(), swap })
}

/// A's life without a neighbour, then with B.
#[derive(Default)]
pub struct Idle {
    /// At the peak, resident or swapped.
    pub peak: u64,
    /// Seconds of the freeing phase.
    pub free_seconds: f64,
    /// Bytes still allocated.
    pub live: f64,
    /// At each look.
    pub looks: Vec<Memory>,
    /// B, where there is a cgroup to share.
    pub hog: Option<Hog>,
}

/// Peak, free, look at it idle, then B.
pub fn idle(allocator: &Allocator, setting: &Setting, swap_is_on: bool) -> Result<Idle, String> {
    let cgroup = swap_is_on.then(|| Cgroup::make("neighbour", setting.limit())).transpose()?;
    let mut a = Neighbour::peak(allocator, setting, cgroup.as_ref(), None)?;
    let peak = a.memory()?.held();
    a.free()?;
    let mut result =
        Idle { peak, free_seconds: a.number("free_ns")? / 1e9, live: a.number("live")?, ..Idle::default() };
    for &seconds in &setting.looks {
        result.looks.push(a.memory_at(seconds)?);
    }
    result.hog = cgroup.as_ref().map(|cgroup| hog(setting, cgroup)).transpose()?;
    Ok(result)
}

/// A before an event, and 0.1 s and 1 s after it.
#[derive(Default)]
pub struct Event {
    /// Whether somebody in A had opened the other end (of the FIFO).
    pub heard: bool,
    /// Before, 0.1 s and 1 s after.
    pub held: [Memory; 3],
}

/// How long A idles before an event: too short for what an allocator gives back by its own clock.
const SETTLE: f64 = 0.1;

/// The event comes by systemd's protocol.
pub fn told_by_fifo(allocator: &Allocator, setting: &Setting) -> Result<Event, String> {
    let fifo = Fifo::make()?;
    let mut a = Neighbour::peak(allocator, setting, None, Some(fifo.path()))?;
    a.free()?;
    let before = a.memory_at(SETTLE)?;
    let event = Instant::now();
    let pipe = fifo.send();
    after(&a, before, event, pipe.is_some())
}

/// The event is the kernel's: the cgroup's limit falls a sixteenth of the peak below what A uses.
pub fn told_by_cgroup(allocator: &Allocator, setting: &Setting) -> Result<Event, String> {
    let cgroup = Cgroup::make("pressure", setting.limit())?;
    let mut a = Neighbour::peak(allocator, setting, Some(&cgroup), None)?;
    a.free()?;
    let before = a.memory_at(SETTLE)?;
    cgroup.limit(cgroup.usage()?.saturating_sub(setting.bytes / 16).max(setting.bytes / 64))?;
    after(&a, before, Instant::now(), false)
}

fn after(a: &Neighbour, before: Memory, event: Instant, heard: bool) -> Result<Event, String> {
    let mut held = [before; 3];
    for (slot, seconds) in held[1..].iter_mut().zip([0.1, 1.0]) {
        let moment = event + Duration::from_secs_f64(seconds);
        std::thread::sleep(moment.saturating_duration_since(Instant::now()));
        *slot = a.memory()?;
    }
    Ok(Event { heard, held })
}
