//! What is run, and the rows that come of it.

use super::programs::{PROGRAMS, Stage};
use crate::harness::json::by_name;
use crate::harness::rounds;
use crate::harness::statistics::Sample;
use crate::harness::{child, proc_files};
use crate::peers::Allocator;
use procfs::FromRead;
use procfs::process::Status;
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

/// One row of the table.
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Whether it stops after a time or after an amount of work.
    pub fixed_time: bool,
    /// On how many threads.
    pub threads: u64,
    /// What it does.
    pub about: String,
}

/// What one allocator did in one workload, a measurement a round.
#[derive(Default)]
pub struct Cell {
    /// Nanoseconds an operation.
    pub time: Sample,
    /// Peak resident set, bytes.
    pub peak: Sample,
    /// Minor page faults.
    pub faults: Sample,
    /// Why it could not go on.
    pub failed: Option<String>,
}

/// A workload's cells, in the allocators' order.
pub type Row = (Workload, Vec<Cell>);

/// Start-up is measured by the harness itself, so it is not in `weir-lab-load`'s table.
const START: &str = "start";
const LIMIT: Duration = Duration::from_secs(180);

/// The rows that `weir-lab-load list` prints.
pub fn workloads() -> Result<Vec<Workload>, String> {
    let mut command = Command::new(child::load_program()?);
    command.arg("list");
    let output = child::run(command, LIMIT, "weir-lab-load list")?.output;
    let rows: Vec<Value> = serde_json::from_str(&output).map_err(|why| format!("weir-lab-load list: {why}"))?;
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_string();
    let mut workloads: Vec<Workload> = rows
        .iter()
        .map(|row| Workload {
            name: text(row, "name"),
            fixed_time: row["fixed_time"] == true,
            threads: row["threads"].as_u64().unwrap_or(1),
            about: text(row, "about"),
        })
        .collect();
    let about = "run `true`: time from start to end; the resident set is that of `cat`".into();
    workloads.push(Workload { name: START.into(), fixed_time: false, threads: 1, about });
    Ok(workloads)
}

/// A row a program; one that is not installed is named and left out.
pub(super) fn measure_programs(
    allocators: &[Allocator],
    runs: u32,
    quick: bool,
    asked: impl Fn(&str) -> bool,
) -> Result<Vec<Row>, String> {
    let stage = Stage::make(quick)?;
    let mut rows = Vec::new();
    for program in PROGRAMS.iter().filter(|program| asked(program.name)) {
        if let Err(why) = program.here() {
            println!("{} is left out: {why}.\n", program.name);
            continue;
        }
        let measure = |allocator: &Allocator, cell: &mut Cell| {
            let figures = (program.run)(&stage, allocator)?;
            cell.time.push(figures.ns);
            cell.peak.push(figures.peak);
            cell.faults.push(figures.faults);
            Ok(())
        };
        let cells = rounds(program.name, allocators, runs, measure);
        let (name, about) = (program.name.into(), program.about.into());
        rows.push((Workload { name, fixed_time: false, threads: 1, about }, cells));
    }
    Ok(rows)
}

pub(super) fn rounds(
    name: &str,
    allocators: &[Allocator],
    runs: u32,
    measure: impl Fn(&Allocator, &mut Cell) -> Result<(), String>,
) -> Vec<Cell> {
    eprintln!("{name}: {runs} rounds of {} allocators", allocators.len());
    let mut cells: Vec<Cell> = allocators.iter().map(|_| Cell::default()).collect();
    for (_, chosen) in rounds::of(runs, allocators.len()) {
        let cell = &mut cells[chosen];
        if cell.failed.is_none()
            && let Err(why) = measure(&allocators[chosen], cell)
        {
            eprintln!("{name} on {}: {why}", allocators[chosen].name);
            cell.failed = Some(why);
        }
    }
    cells
}

pub(super) fn measure(workload: &Workload, allocator: &Allocator, quick: bool, cell: &mut Cell) -> Result<(), String> {
    if workload.name == START {
        return measure_start(allocator, quick, cell);
    }
    let mut command = child::command(child::load_program()?, allocator);
    command.arg(&workload.name);
    command.args(if quick { ["ms=120", "permille=25"] } else { ["ms=1000", "permille=1000"] });
    let finished = child::run(command, LIMIT, &workload.name)?;
    let told: Value = serde_json::from_str(finished.output.trim()).map_err(|why| format!("no result: {why}"))?;
    let number = |key: &str| told[key].as_f64().ok_or_else(|| format!("no '{key}' in its result"));
    cell.time.push(number("ns")? / number("ops")?);
    cell.peak.push(number("peak_kib")? * 1024.0);
    cell.faults.push(finished.minor_faults as f64);
    Ok(())
}

/// One measurement is the mean of many starts: a single one is all noise.
fn measure_start(allocator: &Allocator, quick: bool, cell: &mut Cell) -> Result<(), String> {
    let starts = if quick { 10 } else { 100 };
    let (begin, mut faults) = (Instant::now(), 0);
    for _ in 0..starts {
        faults += child::run(child::command("true", allocator), LIMIT, "true")?.minor_faults;
    }
    cell.time.push(begin.elapsed().as_nanos() as f64 / f64::from(starts));
    cell.faults.push(faults as f64 / f64::from(starts));
    let mut cat = child::command("cat", allocator);
    cat.arg("/proc/self/status");
    let status = Status::from_read(child::run(cat, LIMIT, "cat")?.output.as_bytes());
    cell.peak.push(proc_files::peak_in(&status.map_err(|why| why.to_string())?)? as f64);
    Ok(())
}

pub(super) fn as_json(names: &[&str], subject: &str, runs: u32, rows: &[Row], programs: &[Row]) -> Value {
    let cell = |cell: &Cell| {
        json!({ "ns_per_op": cell.time.json(), "peak_bytes": cell.peak.json(), "minor_faults": cell.faults.json(),
                "failed": cell.failed })
    };
    let row = |(workload, cells): &Row| {
        let cells = by_name(names, cells, cell);
        json!({ "workload": workload.name, "threads": workload.threads, "fixed_time": workload.fixed_time,
                "cells": cells })
    };
    let at = names.iter().position(|name| *name == subject);
    let failed =
        at.and_then(|at| rows.iter().chain(programs).find_map(|(w, cells)| Some((w, cells[at].failed.as_ref()?))));
    json!({ "runs": runs, "rows": rows.iter().map(row).collect::<Vec<_>>(),
            "programs": programs.iter().map(row).collect::<Vec<_>>(),
            "failed": failed.map(|(workload, why)| format!("{}: {why}", workload.name)) })
}
