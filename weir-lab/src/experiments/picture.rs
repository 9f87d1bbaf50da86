//! A picture of memory over time: process A of E8 under each allocator, from its peak to well after its frees.

use crate::harness::args::RunArgs;
use crate::harness::child::{Kept, command, load_program, wait_readable};
use crate::harness::procfs::memory;
use crate::peers::Allocator;
use plotters::prelude::*;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long A may take to reach a phase.
const PHASE_LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at the resident set.
const STEP: Duration = Duration::from_millis(25);
/// Before and after the frees.
const BEFORE: Duration = Duration::from_millis(500);
const AFTER: Duration = Duration::from_millis(3500);

/// Seconds since the frees began, and MiB resident.
type Curve = Vec<(f64, f64)>;

/// Runs A once under each allocator and draws the curves.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let bytes = if args.quick { 256u64 << 20 } else { 1 << 30 };
    let mut curves = Vec::new();
    for allocator in &allocators {
        eprintln!("picture: {}", allocator.name);
        curves.push((allocator.name.clone(), curve(allocator, bytes, &args.mix)?));
    }
    println!("| resident, MiB | at the peak | 0.1 s after the frees | 1 s | 3 s |\n|---|--:|--:|--:|--:|");
    for (name, curve) in &curves {
        let at = |time: f64| curve.iter().rev().find(|(t, _)| *t <= time).map_or(0.0, |(_, mib)| *mib);
        println!("| {name} | {:.0} | {:.0} | {:.0} | {:.0} |", at(0.0), at(0.1), at(1.0), at(3.0));
    }
    if let Some(path) = &args.svg {
        draw(path, &curves, bytes).map_err(|why| format!("cannot draw {}: {why}", path.display()))?;
    }
    Ok(
        json!({ "curves": curves.iter().map(|(name, curve)| json!({ "on": name, "curve": curve })).collect::<Vec<_>>() }),
    )
}

fn curve(allocator: &Allocator, bytes: u64, mix: &str) -> Result<Curve, String> {
    let mut start = command(load_program()?, allocator);
    start.args(["neighbour".into(), format!("bytes={bytes}"), format!("mix={mix}")]);
    start.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut a = Kept(start.spawn().map_err(|why| format!("cannot start A on {}: {why}", allocator.name))?);
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

fn draw(path: &std::path::Path, curves: &[(String, Curve)], bytes: u64) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (860, 440)).into_drawing_area();
    root.fill(&WHITE)?;
    let top = curves.iter().flat_map(|(_, c)| c).map(|(_, mib)| *mib).fold(0.0, f64::max) * 1.1;
    let title = format!("{} MiB allocated, 95 % of it freed at 0 s, then idle", bytes >> 20);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(-BEFORE.as_secs_f64()..AFTER.as_secs_f64(), 0.0..top)?;
    chart.configure_mesh().x_desc("seconds").y_desc("resident, MiB").light_line_style(WHITE).draw()?;
    for (index, (name, curve)) in curves.iter().enumerate() {
        let color = if index == 0 { RED.to_rgba() } else { Palette99::pick(index + 2).to_rgba() };
        let width = if index == 0 { 3 } else { 2 };
        let style = color.stroke_width(width);
        chart
            .draw_series(LineSeries::new(curve.iter().copied(), style))?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}
