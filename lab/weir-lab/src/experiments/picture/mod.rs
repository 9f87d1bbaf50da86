//! A picture of memory over time: process A of E8 under each allocator, from its peak to well after its frees, a panel for
//! each of the kernel's two settings of huge pages that are in use.

mod chart;

use crate::harness::args::RunArgs;
use crate::harness::child::{KilledOnDrop, command, load_program, wait_readable};
use crate::harness::huge_pages;
use crate::harness::proc_files::memory;
use crate::peers::Allocator;
use chart::{Chart, Curve, Panel};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long A may take to reach a phase.
const PHASE_LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at the resident set.
const STEP: Duration = Duration::from_millis(25);
/// Before and after the frees. Most of what happens later than at once happens within 10 s (decay times, calm windows).
const BEFORE: Duration = Duration::from_millis(500);
const AFTER: Duration = Duration::from_secs(12);

/// Runs A once under each allocator and setting, and draws the curves.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let bytes = if args.quick { 256u64 << 20 } else { 1 << 30 };
    let mut panels = Vec::new();
    for mode in modes(args)? {
        let _restored = if huge_pages::found()? == mode { None } else { Some(huge_pages::set(&mode)?) };
        let mut curves = Vec::new();
        for allocator in &allocators {
            eprintln!("picture: huge pages {mode}, {}", allocator.name);
            curves.push((allocator.name.clone(), curve(allocator, bytes, &args.mix)?));
        }
        print_table(&mode, &curves);
        panels.push(Panel { title: format!("Huge pages: {mode}"), curves });
    }
    if let Some(path) = &args.svg {
        let title = format!("{} MiB allocated, 95 % of it freed at 0 s, then idle", bytes >> 20);
        let chart = Chart { title, seconds: -BEFORE.as_secs_f64()..AFTER.as_secs_f64(), panels: &panels };
        std::fs::write(path, chart.svg()).map_err(|why| format!("cannot draw {}: {why}", path.display()))?;
    }
    let all = panels.iter().flat_map(|panel| panel.curves.iter().map(move |(name, curve)| (&panel.title, name, curve)));
    Ok(json!({
        "curves": all.map(|(of, name, curve)| json!({ "of": of, "on": name, "curve": curve })).collect::<Vec<_>>()
    }))
}

/// The settings to draw: those named, or both; or the present one if it cannot be changed.
fn modes(args: &RunArgs) -> Result<Vec<String>, String> {
    if let Some(unknown) = args.only.iter().find(|mode| !huge_pages::MODES.contains(&mode.as_str())) {
        return Err(format!("'{unknown}' is no setting of huge pages: {}", huge_pages::MODES.join(", ")));
    }
    if args.only.is_empty() { huge_pages::modes() } else { Ok(args.only.clone()) }
}

fn print_table(mode: &str, curves: &[(String, Curve)]) {
    println!(
        "| resident, MiB, huge pages `{mode}` | at the peak | 0.1 s after the frees | 1 s | 3 s | 12 s |\n\
         |---|--:|--:|--:|--:|--:|"
    );
    for (name, curve) in curves {
        let at = |time: f64| curve.iter().rev().find(|(t, _)| *t <= time).map_or(0.0, |(_, mib)| *mib);
        println!("| {name} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} |", at(0.0), at(0.1), at(1.0), at(3.0), at(12.0));
    }
    println!();
}

fn curve(allocator: &Allocator, bytes: u64, mix: &str) -> Result<Curve, String> {
    let mut start = command(load_program()?, allocator);
    start.args(["neighbour".into(), format!("bytes={bytes}"), format!("mix={mix}")]);
    start.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut a = KilledOnDrop::start(start, &format!("A on {}", allocator.name))?;
    let (Some(mut input), Some(output)) = (a.0.stdin.take(), a.0.stdout.take()) else {
        return Err("A has no pipes".into());
    };
    let mut lines = BufReader::new(output);
    wait_readable(lines.get_ref(), Instant::now() + PHASE_LIMIT)?;
    let mut line = String::new();
    lines.read_line(&mut line).map_err(|why| format!("A said nothing: {why}"))?;
    let frees = Instant::now() + BEFORE;
    let (mut points, mut told) = (Vec::new(), false);
    while Instant::now() < frees + AFTER {
        if !told && Instant::now() >= frees {
            input.write_all(b"\n").map_err(|why| format!("A ended: {why}"))?;
            told = true;
        }
        let time = Instant::now();
        let since = if time >= frees { (time - frees).as_secs_f64() } else { -(frees - time).as_secs_f64() };
        points.push((since, memory(a.0.id())?.rss as f64 / f64::from(1 << 20)));
        std::thread::sleep(STEP);
    }
    Ok(points)
}
