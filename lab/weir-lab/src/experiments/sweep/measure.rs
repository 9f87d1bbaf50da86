//! What is run, and the curves that come of it.

use crate::harness::child;
use crate::harness::json::by_name;
use crate::harness::statistics::Sample;
use crate::peers::Allocator;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is done at each size, by the load program's names.
pub const PATTERNS: [&str; 8] =
    ["untouched", "first-byte", "whole", "calloc", "aligned", "steps", "doubling", "handover"];
/// Host this size a measurement is quick; from here on one operation may take milliseconds.
const LARGE: u64 = 4 << 20;
/// The largest size; the quick run ends at [`LARGE`].
const LARGEST: u64 = 64 << 20;
const LIMIT: Duration = Duration::from_secs(600);

/// A pattern on so many threads.
pub struct Setting {
    pub pattern: &'static str,
    pub threads: u64,
    quick: bool,
}

/// One allocator's figures at one size.
#[derive(Default)]
pub struct Point {
    /// Processor time of an operation, ns.
    pub ns: Sample,
    /// The resident set's high mark, bytes.
    pub peak: Sample,
}

/// One allocator's figures by size.
#[derive(Default)]
pub struct Curve {
    pub points: BTreeMap<u64, Point>,
    /// Why it could not go on.
    pub failed: Option<String>,
}

/// A setting and its curves, in the allocators' order.
pub type Row = (Setting, Vec<Curve>);

/// The settings: all patterns on one, two and eight threads, but for those that need a number of their own.
pub fn settings(quick: bool, only: &[String]) -> Vec<Setting> {
    let threads = |pattern: &str| match pattern {
        "untouched" | "first-byte" | "whole" if !quick => &[1, 2, 8][..],
        _ => &[1][..],
    };
    let asked = |pattern: &str| match only {
        [] => !quick || matches!(pattern, "first-byte" | "steps"),
        only => only.iter().any(|only| only == pattern),
    };
    let patterns = PATTERNS.into_iter().filter(|pattern| asked(pattern));
    patterns
        .flat_map(|pattern| threads(pattern).iter().map(move |&threads| Setting { pattern, threads, quick }))
        .collect()
}

/// Goes through all sizes once.
pub fn measure(setting: &Setting, allocator: &Allocator, curve: &mut Curve) -> Result<(), String> {
    let (ms, large_ms) = if setting.quick { (3, 6) } else { (10, 20) };
    part(setting, allocator, (8, LARGE, ms), curve)?;
    if setting.quick { Ok(()) } else { part(setting, allocator, (LARGE + 1, LARGEST, large_ms), curve) }
}

fn part(
    setting: &Setting,
    allocator: &Allocator,
    (from, to, ms): (u64, u64, u64),
    curve: &mut Curve,
) -> Result<(), String> {
    let mut command = child::command(child::load_program()?, allocator);
    command.arg("sweep").arg(format!("pattern={}", setting.pattern)).arg(format!("threads={}", setting.threads));
    command.arg(format!("from={from}")).arg(format!("to={to}")).arg(format!("ms={ms}"));
    let finished = child::run(command, LIMIT, "sweep")?;
    for line in finished.output.lines() {
        let told: Value = serde_json::from_str(line).map_err(|why| format!("'{line}' is no figure: {why}"))?;
        let number = |key: &str| told[key].as_f64().ok_or_else(|| format!("no {key} in '{line}'"));
        let point = curve.points.entry(number("size")? as u64).or_default();
        point.ns.push(number("ns")?);
        point.peak.push(number("peak_kib")? * 1024.0);
    }
    if curve.points.is_empty() { Err("it measured nothing".into()) } else { Ok(()) }
}

/// All medians, and what failed of the subject.
pub fn as_json(names: &[&str], subject: &str, runs: u32, rows: &[Row]) -> Value {
    let curve = |curve: &Curve| {
        let point = |(size, point): (&u64, &Point)| json!([size, point.ns.median(), point.peak.median()]);
        json!({ "size_ns_peak": curve.points.iter().map(point).collect::<Vec<_>>(), "failed": curve.failed })
    };
    let row = |(setting, curves): &Row| {
        let curves = by_name(names, curves, curve);
        json!({ "pattern": setting.pattern, "threads": setting.threads, "curves": curves })
    };
    let at = names.iter().position(|name| *name == subject);
    let failed = at.and_then(|at| rows.iter().find_map(|(_, curves)| curves[at].failed.clone()));
    json!({ "runs": runs, "rows": rows.iter().map(row).collect::<Vec<_>>(), "failed": failed })
}
