//! One run of E8: process A under an allocator, phase by phase, measured from outside.

use crate::harness::cgroup::{Cgroup, enter};
use crate::harness::child::{command, load_program};
use crate::harness::phases::{PhasedProgram, load, sleep_until};
use crate::harness::pressure_fifo::PressureFifo;
use crate::harness::proc_files::{ProcessMemory, SwapTraffic};
use crate::peers::Allocator;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// How large, and when A is looked at.
pub struct Setting {
    /// A's peak, and what B needs.
    pub bytes: u64,
    /// `even-counts` or `even-bytes`.
    pub mix: String,
    /// Seconds after the frees at which A's resident set is read.
    pub looks: Vec<f64>,
    /// The same where it has no limit and no neighbour.
    pub free_looks: Vec<f64>,
}

impl Setting {
    /// The cgroup's limit: 1.2 times what each of the two needs.
    pub fn limit(&self) -> u64 {
        self.bytes * 12 / 10
    }
}

const PHASE_LIMIT: Duration = Duration::from_secs(120);

/// Starts A and waits until all its blocks are allocated and written.
fn peak(
    allocator: &Allocator,
    setting: &Setting,
    cgroup: Option<&Cgroup>,
    watch: Option<&Path>,
) -> Result<PhasedProgram, String> {
    let words = ["neighbour".to_string(), format!("bytes={}", setting.bytes), format!("mix={}", setting.mix)];
    let mut start = load(allocator, &words)?;
    if let Some(fifo) = watch {
        start.env("MEMORY_PRESSURE_WATCH", fifo);
    }
    PhasedProgram::start("A", start, cgroup)
}

/// What B took.
#[derive(Clone, Debug, Default)]
pub struct HogRun {
    /// Seconds of each of its turns.
    pub turns: Vec<f64>,
    /// Swap traffic of the machine while it ran.
    pub swap: SwapTraffic,
}

/// Runs B in the cgroup: it needs the bytes twice, one time after the other.
pub fn hog(setting: &Setting, cgroup: &Cgroup) -> Result<HogRun, String> {
    let plain = Allocator { name: "B".into(), preload: None, version: String::new(), env: &[] };
    let mut start = command(load_program()?, &plain);
    start.args(["hog", &format!("bytes={}", setting.bytes), "times=2"]);
    enter(&mut start, cgroup);
    let before = SwapTraffic::now()?;
    let finished = crate::harness::child::run(start, PHASE_LIMIT * 4, "B")?;
    let swap = SwapTraffic::now()?.since(before);
    let said: Value = serde_json::from_str(finished.output.trim()).map_err(|why| format!("B said nonsense: {why}"))?;
    let turns = said["turns_ns"].as_array().ok_or("B said no times")?;
    Ok(HogRun { turns: turns.iter().filter_map(|ns| Some(ns.as_f64()? / 1e9)).collect(), swap })
}

/// The figures of A without a neighbour, then with B.
#[derive(Default)]
pub struct IdleRun {
    /// At the peak, resident or swapped.
    pub peak: u64,
    /// Seconds of the freeing phase.
    pub free_seconds: f64,
    /// Bytes still allocated.
    pub live: f64,
    /// At each look.
    pub looks: Vec<ProcessMemory>,
    /// B, where there is a cgroup to share.
    pub hog: Option<HogRun>,
}

/// Peak, free, look at it idle, then B if there is a cgroup to share.
pub fn idle(allocator: &Allocator, setting: &Setting, cgroup: Option<&Cgroup>) -> Result<IdleRun, String> {
    let mut a = peak(allocator, setting, cgroup, None)?;
    let peak = a.memory()?.held();
    a.next_phase()?;
    let mut result =
        IdleRun { peak, free_seconds: a.number("free_ns")? / 1e9, live: a.number("live")?, ..IdleRun::default() };
    for &seconds in if cgroup.is_some() { &setting.looks } else { &setting.free_looks } {
        result.looks.push(a.memory_at(seconds)?);
    }
    result.hog = cgroup.map(|cgroup| hog(setting, cgroup)).transpose()?;
    Ok(result)
}

/// A before an event, and 0.1 s and 1 s after it.
#[derive(Default)]
pub struct EventRun {
    /// Whether A had opened the other end (of the FIFO).
    pub heard: bool,
    /// Before, 0.1 s and 1 s after.
    pub held: [ProcessMemory; 3],
}

/// How long A idles before an event: too short for what an allocator gives back by its own clock.
const SETTLE: f64 = 0.1;

/// The event is sent by systemd's protocol.
pub fn told_by_fifo(allocator: &Allocator, setting: &Setting) -> Result<EventRun, String> {
    let fifo = PressureFifo::make()?;
    let mut a = peak(allocator, setting, None, Some(fifo.path()))?;
    a.next_phase()?;
    let before = a.memory_at(SETTLE)?;
    let event = Instant::now();
    let pipe = fifo.send();
    after(&a, before, event, pipe.is_some())
}

/// The event is the kernel's: the cgroup's limit falls a sixteenth of the peak below what A uses.
pub fn told_by_cgroup(allocator: &Allocator, setting: &Setting) -> Result<EventRun, String> {
    let cgroup = Cgroup::make("pressure", setting.limit())?;
    let mut a = peak(allocator, setting, Some(&cgroup), None)?;
    a.next_phase()?;
    let before = a.memory_at(SETTLE)?;
    cgroup.limit(cgroup.usage()?.saturating_sub(setting.bytes / 16).max(setting.bytes / 64))?;
    after(&a, before, Instant::now(), false)
}

fn after(a: &PhasedProgram, before: ProcessMemory, event: Instant, heard: bool) -> Result<EventRun, String> {
    let mut held = [before; 3];
    for (slot, seconds) in held[1..].iter_mut().zip([0.1, 1.0]) {
        sleep_until(event, seconds);
        *slot = a.memory()?;
    }
    Ok(EventRun { heard, held })
}
