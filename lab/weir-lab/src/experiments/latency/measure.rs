//! What is run, and the rows that come of it.

use crate::harness::child;
use crate::harness::json::by_name;
use crate::harness::pressure_fifo::{PressureFifo, tell};
use crate::harness::statistics::Sample;
use crate::peers::Allocator;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The calls that are timed, by their names in the program's output.
pub const CALLS: [&str; 2] = ["malloc", "free"];
/// The figures of each distribution.
pub const QUANTILES: [&str; 5] = ["p50", "p99", "p99.9", "p99.99", "max"];
/// Between two pressure events.
pub const EVENT_GAP: Duration = Duration::from_millis(100);

const LIMIT: Duration = Duration::from_secs(120);

/// Under what load.
pub struct Setting {
    /// How many threads allocate.
    pub threads: usize,
    /// Whether pressure events come in all the time.
    pub pressure: bool,
}

/// One allocator under one load; nanoseconds.
#[derive(Default)]
pub struct Cell {
    /// By call, then by quantile.
    pub calls: [[Sample; QUANTILES.len()]; CALLS.len()],
    /// What reading the clock costs, which is in every figure.
    pub clock: Sample,
    /// Pressure events that the allocator took, of all runs; none if it does not read them.
    pub events: u64,
    /// Why it could not go on.
    pub failed: Option<String>,
}

/// A load and its cells in the allocators' order.
pub type Row = (Setting, Vec<Cell>);

pub(super) fn measure(setting: &Setting, allocator: &Allocator, ms: u64, cell: &mut Cell) -> Result<(), String> {
    let mut command = child::command(child::load_program()?, allocator);
    command.args(["latency", &format!("threads={}", setting.threads), &format!("ms={ms}")]);
    let finished = if setting.pressure {
        let fifo = PressureFifo::make()?;
        command.env("MEMORY_PRESSURE_WATCH", fifo.path());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let events = scope.spawn(|| press(&fifo, &over));
            let finished = child::run(command, LIMIT, "latency");
            over.store(true, Ordering::Relaxed);
            cell.events += events.join().unwrap_or(0);
            finished
        })?
    } else {
        child::run(command, LIMIT, "latency")?
    };
    let told: Value = serde_json::from_str(finished.output.trim()).map_err(|why| format!("no result: {why}"))?;
    let number = |value: &Value| value.as_f64().ok_or_else(|| "a figure is missing in its result".to_string());
    cell.clock.push(number(&told["clock_ns"])?);
    for (call, samples) in CALLS.iter().zip(&mut cell.calls) {
        for (quantile, sample) in QUANTILES.iter().zip(samples) {
            sample.push(number(&told[call][quantile])?);
        }
    }
    Ok(())
}

/// Sends events as long as they are read; returns how many were.
fn press(fifo: &PressureFifo, over: &AtomicBool) -> u64 {
    let (mut pipe, mut events) = (None, 0);
    while !over.load(Ordering::Relaxed) {
        if pipe.is_none() {
            pipe = fifo.open();
        }
        events += u64::from(pipe.as_mut().is_some_and(tell));
        std::thread::sleep(EVENT_GAP);
    }
    events
}

pub(super) fn as_json(names: &[&str], subject: &str, rounds: u32, rows: &[Row]) -> Value {
    let distribution = |samples: &[Sample; QUANTILES.len()]| {
        let told = QUANTILES.iter().zip(samples).map(|(quantile, sample)| (quantile.to_string(), sample.json()));
        Value::Object(told.collect())
    };
    let cell = |cell: &Cell| {
        json!({ "malloc_ns": distribution(&cell.calls[0]), "free_ns": distribution(&cell.calls[1]),
                "clock_ns": cell.clock.json(), "events": cell.events, "failed": cell.failed })
    };
    let row = |(setting, cells): &Row| {
        let cells = by_name(names, cells, cell);
        json!({ "threads": setting.threads, "pressure": setting.pressure, "cells": cells })
    };
    let at = names.iter().position(|name| *name == subject);
    let failed = at.and_then(|at| rows.iter().find_map(|(_, cells)| cells[at].failed.clone()));
    json!({ "runs": rounds, "rows": rows.iter().map(row).collect::<Vec<_>>(), "failed": failed })
}
