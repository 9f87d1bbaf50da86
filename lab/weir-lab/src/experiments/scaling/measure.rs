//! What is run, and the rows that come of it.

use crate::harness::child;
use crate::harness::json::by_name;
use crate::harness::rounds;
use crate::harness::statistics::Sample;
use crate::peers::Allocator;
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

/// On how many threads.
pub(super) const THREADS: [u64; 5] = [1, 2, 4, 16, 64];
/// Bytes live at once, GiB.
const HEAPS: [u64; 3] = [1, 4, 16];
/// Every allocator has some overhead, and other processes run on the machine.
const HEADROOM: f64 = 1.3;
const LIMIT: Duration = Duration::from_secs(180);

/// One allocator at one point of a curve.
#[derive(Default)]
pub struct Cell {
    /// Nanoseconds an operation.
    pub time: Sample,
    /// Why it could not go on.
    pub failed: Option<String>,
}

/// A point of a curve: the number of threads or GiB, and the cells in the allocators' order.
pub type Point = (u64, Vec<Cell>);

/// A workload and its points.
pub struct Curve {
    /// Which workload.
    pub name: String,
    /// In rising order.
    pub points: Vec<Point>,
}

/// What `--only` calls the measurement of large heaps.
pub(super) const HEAP: &str = "big-heap";

pub(super) fn heap(allocators: &[Allocator], rounds: u32) -> Result<Curve, String> {
    let mut points = Vec::new();
    for gib in HEAPS {
        let (needed, available) =
            ((gib << 30) as f64 * HEADROOM, crate::harness::proc_files::available_memory()? as f64);
        if needed > available {
            let gib_of = |bytes: f64| bytes / f64::from(1 << 30);
            println!(
                "A heap of {gib} GiB is left out: it wants {:.1} GiB of memory, and {:.1} are available.\n",
                gib_of(needed),
                gib_of(available)
            );
            continue;
        }
        eprintln!("{HEAP}, {gib} GiB: {rounds} rounds of {} allocators", allocators.len());
        let words = || vec![HEAP.to_string(), (gib << 10).to_string(), "2000".to_string()];
        points.push((gib, cells(allocators, rounds, words)));
    }
    Ok(Curve { name: HEAP.into(), points })
}

pub(super) fn workload(name: &str, threads: u64, quick: bool) -> Vec<String> {
    let size = if quick { ["ms=60", "permille=10"] } else { ["ms=500", "permille=250"] };
    [name, &format!("threads={threads}")].into_iter().chain(size).map(String::from).collect()
}

pub(super) fn cells(allocators: &[Allocator], rounds: u32, words: impl Fn() -> Vec<String>) -> Vec<Cell> {
    let mut cells: Vec<Cell> = allocators.iter().map(|_| Cell::default()).collect();
    for (_, chosen) in rounds::of(rounds, allocators.len()) {
        let cell = &mut cells[chosen];
        if cell.failed.is_some() {
            continue;
        }
        match measure(&allocators[chosen], &words()) {
            Ok(ns) => cell.time.push(ns),
            Err(why) => {
                eprintln!("{}: {why}", allocators[chosen].name);
                cell.failed = Some(why);
            }
        }
    }
    cells
}

fn measure(allocator: &Allocator, words: &[String]) -> Result<f64, String> {
    let mut command: Command = child::command(child::load_program()?, allocator);
    command.args(words);
    let finished = child::run(command, LIMIT, &words.join(" "))?;
    let told: Value = serde_json::from_str(finished.output.trim()).map_err(|why| format!("no result: {why}"))?;
    let number = |key: &str| told[key].as_f64().ok_or_else(|| format!("no '{key}' in its result"));
    Ok(number("ns")? / number("ops")?)
}

pub(super) fn as_json(names: &[&str], subject: &str, rounds: u32, curves: &[Curve], heap: Option<&Curve>) -> Value {
    let cell = |cell: &Cell| json!({ "ns_per_op": cell.time.json(), "failed": cell.failed });
    let point = |(at, cells): &Point| {
        let cells = by_name(names, cells, cell);
        json!({ "at": at, "cells": cells })
    };
    let curve =
        |curve: &Curve| json!({ "workload": curve.name, "points": curve.points.iter().map(point).collect::<Vec<_>>() });
    let at = names.iter().position(|name| *name == subject);
    let failed = at.and_then(|at| {
        let mut points =
            curves.iter().chain(heap).flat_map(|curve| curve.points.iter().map(move |point| (curve, point)));
        points.find_map(|(curve, (_, cells))| Some(format!("{}: {}", curve.name, cells[at].failed.as_ref()?)))
    });
    json!({ "runs": rounds, "threads": curves.iter().map(curve).collect::<Vec<_>>(), "heap": heap.map(curve),
            "failed": failed })
}
