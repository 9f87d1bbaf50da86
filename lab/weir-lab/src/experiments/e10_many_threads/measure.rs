//! What is run, and the rows that come of it.

use crate::harness::child::{KilledOnDrop, command, load_program, wait_readable};
use crate::harness::json::by_name;
use crate::harness::phases::sleep_until;
use crate::harness::rounds;
use crate::harness::statistics::Sample;
use crate::peers::Allocator;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Seconds after the last thread fell asleep at which the resident set is read.
pub const LOOKS: [f64; 3] = [0.0, 2.0, 5.0];

/// How many threads are tried, at most up to the machine's limit.
pub(super) const COUNTS: [u64; 5] = [10, 100, 1_000, 4_000, 10_000];
const LIMIT: Duration = Duration::from_secs(120);

/// Resident sets in bytes, a sample a look; or why there are none.
pub struct Cell {
    /// In the order of [`LOOKS`].
    pub resident: [Sample; LOOKS.len()],
    /// Why it could not go on, or was not tried.
    pub failed: Option<String>,
}

/// One number of threads.
pub struct Row {
    /// How many.
    pub threads: u64,
    /// The program that allocates nothing.
    pub none: Cell,
    /// In the allocators' order.
    pub cells: Vec<Cell>,
}

pub(super) fn measure(threads: u64, allocators: &[Allocator], rounds: u32, fewer: Option<&Row>) -> Result<Row, String> {
    eprintln!("e10, {threads} threads: {rounds} rounds of {} allocators", allocators.len());
    let cell = |failed| Cell { resident: Default::default(), failed };
    let none = Allocator { name: "none".into(), preload: None, version: String::new(), env: &[] };
    let cells = (0..allocators.len()).map(|index| cell(fewer.and_then(|row| too_much(row, index, threads)))).collect();
    let mut row = Row { threads, none: cell(None), cells };
    for (_, chosen) in rounds::of(rounds, allocators.len() + 1) {
        let (allocator, cell, how) = match allocators.get(chosen) {
            Some(allocator) => (allocator, &mut row.cells[chosen], "malloc"),
            None => (&none, &mut row.none, "none"),
        };
        if cell.failed.is_some() {
            continue;
        }
        match one(threads, allocator, how) {
            Ok(looks) => cell.resident.iter_mut().zip(looks).for_each(|(sample, look)| sample.push(look)),
            Err(why) => {
                eprintln!("{} with {threads} threads: {why}", allocator.name);
                cell.failed = Some(why);
            }
        }
    }
    // Every figure is given above the program without malloc.
    match &row.none.failed {
        Some(why) => Err(format!("the program without malloc: {why}")),
        None => Ok(row),
    }
}

/// An allocator that would need most of the machine's memory is left out: other processes run on the machine.
fn too_much(fewer: &Row, index: usize, threads: u64) -> Option<String> {
    let before = &fewer.cells[index];
    if let Some(why) = &before.failed {
        return Some(format!("{why} ({} threads)", fewer.threads));
    }
    let expected = before.resident[0].median() * threads as f64 / fewer.threads as f64;
    let available = crate::harness::proc_files::available_memory().ok()? as f64;
    (expected > 0.75 * available).then(|| {
        let gib = f64::from(1 << 30);
        format!("would need {:.1} GiB of the {:.1} available", expected / gib, available / gib)
    })
}

fn one(threads: u64, allocator: &Allocator, how: &str) -> Result<[f64; LOOKS.len()], String> {
    let mut start = command(load_program()?, allocator);
    start.args(["many-threads", &threads.to_string(), how]);
    start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = KilledOnDrop::start(start, "weir-lab-load")?;
    let pipe = child.0.stdout.take().ok_or("no output to read")?;
    wait_readable(&pipe, Instant::now() + LIMIT)?;
    let mut line = String::new();
    BufReader::new(pipe).read_line(&mut line).map_err(|why| format!("cannot read its output: {why}"))?;
    let asleep = Instant::now();
    if line.trim() != "asleep" {
        let mut complaint = String::new();
        let stderr = child.0.stderr.take().map(BufReader::new);
        let _ = stderr.map(|mut stderr| stderr.read_line(&mut complaint));
        return Err(if complaint.is_empty() { "it ended by itself".into() } else { complaint.trim().into() });
    }
    let mut looks = [0.0; LOOKS.len()];
    for (look, seconds) in looks.iter_mut().zip(LOOKS) {
        sleep_until(asleep, seconds);
        *look = crate::harness::proc_files::memory(child.0.id())?.rss as f64;
    }
    Ok(looks)
}

pub(super) fn as_json(names: &[&str], subject: &str, rounds: u32, rows: &[Row]) -> Value {
    let cell = |cell: &Cell| json!({ "resident": cell.resident.iter().map(Sample::json).collect::<Vec<_>>(), "failed": cell.failed });
    let row = |row: &Row| {
        let cells = by_name(names, &row.cells, cell);
        json!({ "threads": row.threads, "none": cell(&row.none), "cells": cells })
    };
    let at = names.iter().position(|name| *name == subject);
    let failed = at.and_then(|at| rows.iter().find_map(|row| Some((row.threads, row.cells[at].failed.as_ref()?))));
    json!({ "runs": rounds, "looks_s": LOOKS, "rows": rows.iter().map(row).collect::<Vec<_>>(),
            "failed": failed.map(|(threads, why)| format!("{threads} threads: {why}")) })
}
