//! What is run, and the rows that come of it.

use super::huge_page_counts::Huge;
use crate::harness::child::{command, load_program, run as run_child};
use crate::harness::proc_files::PAGE;
use crate::harness::rounds;
use crate::harness::statistics::Sample;
use crate::peers::Allocator;
use serde_json::{Value, json};
use std::time::Duration;

/// The two sides: the environment of each.
pub const SIDES: [(&str, &[(&str, &str)]); 2] = [("off", &[("WEIR_REPORT", "0")]), ("on", &[("WEIR_REPORT", "1")])];

/// What a task maps its 128 MiB as.
pub const FORMS: [(&str, u64); 2] = [("one block", 128 << 20), ("blocks of 1 MiB", 1 << 20)];

/// Milliseconds between the rounds.
const PAUSES: [u64; 3] = [100, 1000, 3000];
const LIMIT: Duration = Duration::from_secs(60);

/// One point: so many tasks, off and on.
pub struct Point {
    /// Tasks at once.
    pub tasks: usize,
    /// As processes, or as threads.
    pub processes: bool,
    /// What 128 MiB are mapped as.
    pub form: &'static str,
    /// Pages a second, in the order of [`SIDES`].
    pub pages: [Sample; 2],
}

/// One length of pause, off and on.
pub struct Pause {
    /// Milliseconds.
    pub ms: u64,
    /// Milliseconds a round, in the order of [`SIDES`].
    pub round: [Sample; 2],
}

/// As many tasks as there are CPUs, and twice as many.
fn task_counts(quick: bool) -> Vec<usize> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let most = if quick { 2 } else { 2 * cpus };
    if most <= 8 {
        (1..=most).collect()
    } else {
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n <= most).collect()
    }
}

/// Every point in each round, both its sides one right after the other: what the machine does meanwhile, both have.
pub(super) fn measure_form(
    subject: &Allocator,
    form: (&'static str, u64),
    rounds: u32,
    quick: bool,
) -> Result<Vec<Point>, String> {
    let ms = if quick { 150 } else { 300 };
    let kinds =
        [true, false].into_iter().flat_map(|processes| task_counts(quick).into_iter().map(move |n| (processes, n)));
    let mut points: Vec<Point> =
        kinds.map(|(processes, tasks)| Point { tasks, processes, form: form.0, pages: Default::default() }).collect();
    for round in 0..rounds {
        eprintln!("e6, {}, round {} of {rounds}", form.0, round + 1);
        for point in &mut points {
            let kind = if point.processes { "processes" } else { "threads" };
            let words = [
                format!("tasks={}", point.tasks),
                format!("as={kind}"),
                format!("block={}", form.1),
                format!("ms={ms}"),
            ];
            for side in [round % 2, 1 - round % 2].map(|side| side as usize) {
                let (ops, seconds) = one(subject, side, &words)?;
                point.pages[side].push(ops / seconds);
            }
        }
    }
    Ok(points)
}

pub(super) fn pauses(subject: &Allocator, rounds: u32, quick: bool) -> Result<Vec<Pause>, String> {
    let mut all = Vec::new();
    for ms in PAUSES.into_iter().filter(|ms| !quick || *ms <= 100) {
        eprintln!("e6, pauses of {ms} ms");
        let length = (4 * (ms + 100)).max(1000);
        let words = [format!("block={}", FORMS[1].1), format!("pause={ms}"), format!("ms={length}")];
        let mut round: [Sample; 2] = Default::default();
        for (_, side) in rounds::of(rounds, SIDES.len()) {
            let (ops, seconds) = one(subject, side, &words)?;
            let pages_a_round = ((128 << 20) / PAGE) as f64;
            round[side].push(seconds * 1e3 / (ops / pages_a_round));
        }
        all.push(Pause { ms, round });
    }
    Ok(all)
}

/// Pages written to, and in how many seconds.
fn one(subject: &Allocator, side: usize, words: &[String]) -> Result<(f64, f64), String> {
    let mut start = command(load_program()?, subject);
    start.envs(SIDES[side].1.iter().copied()).arg("page-fault").args(words);
    let finished = run_child(start, LIMIT, "page-fault")?;
    let told: Value = serde_json::from_str(finished.output.trim()).map_err(|why| format!("no result: {why}"))?;
    let number = |key: &str| told[key].as_f64().filter(|n| *n > 0.0).ok_or_else(|| format!("no '{key}' in its result"));
    Ok((number("ops")?, number("ns")? / 1e9))
}

pub(super) fn as_json(points: &[Point], pauses: &[Pause], huge: &[Huge]) -> Value {
    let sides = |samples: &[Sample; 2]| json!({ "off": samples[0].json(), "on": samples[1].json() });
    let point = |p: &Point| json!({ "form": p.form, "tasks": p.tasks, "processes": p.processes, "pages_a_second": sides(&p.pages) });
    let pause = |p: &Pause| json!({ "pause_ms": p.ms, "round_ms": sides(&p.round) });
    json!({ "points": points.iter().map(point).collect::<Vec<_>>(), "pauses": pauses.iter().map(pause).collect::<Vec<_>>(),
            "huge": huge.iter().map(Huge::json).collect::<Vec<_>>() })
}
