//! One run: the two programs side by side in a cgroup, until their time is up.

use super::outcome::Run;
use super::subject::{Subject, WEIR};
use crate::harness::cgroup::{Cgroup, enter};
use crate::harness::child::{KilledOnDrop, beside, load_program};
use crate::harness::proc_files::SwapTraffic;
use crate::harness::statistics::Sample;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// How large, and for how long.
pub struct Setting {
    /// Seconds of a run.
    pub seconds: u32,
    /// The cgroup's limit, bytes.
    pub limit: u64,
    /// Bytes of a value.
    pub block: u64,
    /// How many different values there are.
    pub blocks: u64,
    /// From one peak of the neighbour's demand to the next, ms.
    pub period_ms: u64,
}

impl Setting {
    /// Values of 16 KiB, three times the limit of them; ten swings a run, but none of less than three seconds: what
    /// listens for pressure looks four times a second.
    pub fn new(seconds: u32, limit: u64) -> Setting {
        let block = 16 << 10;
        let period_ms = (u64::from(seconds) * 100).max(3_000);
        Setting { seconds, limit, block, blocks: limit * 3 / block, period_ms }
    }

    fn milliseconds(&self) -> u64 {
        u64::from(self.seconds) * 1000
    }
}

/// Runs one subject beside its neighbour.
pub(super) fn one(subject: &Subject, setting: &Setting, file: &Path) -> Result<Run, String> {
    let cgroup = Cgroup::make("two", setting.limit)?;
    cgroup.limit_swap(setting.limit, setting.limit)?;
    let mut worker = Command::new(beside(subject.program)?);
    let size = setting.limit / 100 * subject.percent.unwrap_or(0);
    worker.args(["worker".to_string(), format!("cache={}", subject.kind), format!("bytes={size}")]);
    worker.args([format!("block={}", setting.block), format!("blocks={}", setting.blocks)]);
    worker.arg(format!("file={}", file.display())).arg(format!("ms={}", setting.milliseconds()));
    let mut neighbour = Command::new(load_program()?);
    let demand = [10, 90].map(|percent| setting.limit / 100 * percent);
    neighbour.args(["swing".to_string(), format!("least={}", demand[0]), format!("most={}", demand[1])]);
    neighbour.args([format!("period={}", setting.period_ms), format!("ms={}", setting.milliseconds())]);
    let before = SwapTraffic::now()?;
    let (worker, neighbour) = (start(worker, &cgroup)?, start(neighbour, &cgroup)?);
    let ((served, first_ended), (swung, second_ended)) = (listen(worker)?, listen(neighbour)?);
    let last = |lines: &[Value], key: &str| lines.last().and_then(|line| line[key].as_f64()).unwrap_or(0.0);
    let late: Sample = served[served.len() / 2..].iter().filter_map(|line| line["cached"].as_f64()).collect();
    Ok(Run {
        requests: last(&served, "requests"),
        hits: last(&served, "hits"),
        neighbour: last(&swung, "work"),
        cached: [late.min(), late.max()],
        swap: SwapTraffic::now()?.since(before),
        killed: [first_ended, second_ended].into_iter().filter(|ended| !ended).count(),
    })
}

/// A program under way, and the thread that reads its lines.
struct Program(KilledOnDrop, std::thread::JoinHandle<Vec<Value>>);

fn start(mut command: Command, cgroup: &Cgroup) -> Result<Program, String> {
    enter(&mut command, cgroup);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = KilledOnDrop::start(command, "a program of e13")?;
    let output = child.0.stdout.take().ok_or("no output")?;
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    let reader = std::thread::spawn(|| lines.filter_map(|line| serde_json::from_str(&line).ok()).collect());
    Ok(Program(child, reader))
}

/// Its lines, and whether it came to its end.
fn listen(program: Program) -> Result<(Vec<Value>, bool), String> {
    let Program(mut child, reader) = program;
    let lines = reader.join().map_err(|_| "a reader panicked")?;
    let status = child.0.wait().map_err(|why| why.to_string())?;
    Ok((lines, status.success()))
}

impl Subject {
    /// A figure of all runs.
    pub fn sample(&self, of: impl Fn(&Run) -> f64) -> Sample {
        self.runs.iter().map(of).collect()
    }

    /// The work of both, in % of what `reference` did: the mean of the two shares.
    pub fn total(&self, reference: &Subject) -> Sample {
        let [requests, neighbour] =
            [reference.sample(|run| run.requests).mean(), reference.sample(|run| run.neighbour).mean()];
        self.sample(|run| 50.0 * (run.requests / requests + run.neighbour / neighbour))
    }
}

/// Weir's, if it ran.
pub fn reference(subjects: &[Subject]) -> Option<&Subject> {
    subjects.iter().find(|subject| subject.kind == WEIR)
}

/// A quick run is too short for a judgement: only a full one fails where a program was killed.
pub(super) fn as_json(subjects: &[Subject], setting: &Setting, is_quick: bool) -> Value {
    let run = |run: &Run| {
        json!({ "requests": run.requests, "hits": run.hits, "neighbour": run.neighbour, "cached": run.cached,
                "pswpin": run.swap.pages_in, "pswpout": run.swap.pages_out, "killed": run.killed })
    };
    let all: serde_json::Map<_, _> =
        subjects.iter().map(|subject| (subject.label.clone(), subject.runs.iter().map(run).collect())).collect();
    let killed = reference(subjects).map_or(0, |weir| weir.runs.iter().map(|run| run.killed).sum());
    let failed =
        (killed > 0 && !is_quick).then(|| format!("{killed} programs did not come to their end beside Weir's cache"));
    json!({ "seconds": setting.seconds, "limit": setting.limit, "runs": all, "failed": failed })
}
