//! What is run, and the rows that come of it.

use crate::harness::child::{command, load_program, run as run_child};
use crate::harness::pressure_fifo::{PressureFifo, tell};
use crate::harness::statistics::Sample;
use crate::peers::{Allocator, WEIR};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// Between two events, where there is pressure.
const EVENT: Duration = Duration::from_millis(100);

/// What presses.
#[derive(Clone, Copy, PartialEq)]
pub enum Pressure {
    /// Nothing.
    None,
    /// A limit of its own that the process is near all the time: read every 250 ms, buckets shrink.
    Soft,
    /// An event of the service manager's every [`EVENT`], which is severe: all CPUs' buckets are drained.
    Drains,
}

/// One row of the table.
pub struct Row {
    /// As in the table.
    pub label: String,
    /// On which allocator.
    pub allocator: Allocator,
    /// `cache`, `limited`, `malloc` or `none`.
    pub from: &'static str,
    /// What presses meanwhile.
    pub pressure: Pressure,
    /// Its runs.
    pub runs: Runs,
}

/// All runs of a row, a sample a figure.
#[derive(Default)]
pub struct Runs {
    /// Packets a second.
    pub rate: Sample,
    /// Nanoseconds an allocation, and a free.
    pub alloc: Sample,
    /// As `alloc`.
    pub free: Sample,
    /// Microseconds that all but one of 10,000 bursts of 32 did not take longer than.
    pub rare: Sample,
    /// Microseconds of the longest burst of 32 while the thread kept its CPU.
    pub stall: Sample,
    /// Such bursts a second of over 1 ms.
    pub stalls: Sample,
    /// Drains and trims that took something.
    pub drains: Sample,
    /// As `drains`.
    pub trims: Sample,
    /// The bucket's size at each look, of all runs.
    pub bucket: Sample,
    /// What the cache held free at each look, of all runs, in objects.
    pub held: Sample,
    /// Why it could not go on.
    pub failed: Option<String>,
}

/// Weir's caches in all settings, then the malloc of every allocator.
pub(super) fn rows(allocators: Vec<Allocator>) -> Vec<Row> {
    let mut rows = Vec::new();
    for allocator in allocators {
        let row = |label: &str, from, pressure| Row {
            label: label.into(),
            allocator: allocator.clone(),
            from,
            pressure,
            runs: Runs::default(),
        };
        if allocator.name == WEIR {
            rows.push(row("cache", "cache", Pressure::None));
            rows.push(row("cache, soft pressure", "cache", Pressure::Soft));
            rows.push(row("cache, drains", "cache", Pressure::Drains));
            rows.push(row("cache with a limit to account", "limited", Pressure::None));
        }
        if allocator.name == WEIR {
            rows.push(row("no allocator: places in turn", "none", Pressure::None));
        }
        rows.push(row(&format!("malloc of {}", allocator.name), "malloc", Pressure::None));
    }
    rows
}

pub(super) fn one(row: &mut Row, ms: u64) -> Result<(), String> {
    let mut start = command(load_program()?, &row.allocator);
    start.args(["forward", &format!("from={}", row.from), &format!("ms={ms}")]);
    let said = match row.pressure {
        Pressure::None => run_child(start, LIMIT, "forward")?.output,
        Pressure::Soft => {
            // Near enough to be soft whatever it uses (the headroom is the whole limit), far enough not to be severe.
            start.env("WEIR_LIMIT", "12M").env("WEIR_HEADROOM_PERCENT", "50");
            run_child(start, LIMIT, "forward")?.output
        }
        Pressure::Drains => {
            let fifo = PressureFifo::make()?;
            start.env("MEMORY_PRESSURE_WATCH", fifo.path()).env("WEIR_SEVERE_INTERVAL_MS", "50");
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| keep_telling(&fifo, &over));
                let finished = run_child(start, LIMIT, "forward");
                over.store(true, Ordering::Relaxed);
                finished
            })?
            .output
        }
    };
    note(&mut row.runs, said.trim())
}

fn keep_telling(fifo: &PressureFifo, over: &AtomicBool) {
    let (mut pipe, end) = (None, Instant::now() + LIMIT);
    while !over.load(Ordering::Relaxed) && Instant::now() < end {
        pipe = pipe.or_else(|| fifo.open());
        if let Some(open) = &mut pipe {
            tell(open);
        }
        std::thread::sleep(EVENT);
    }
}

fn note(runs: &mut Runs, said: &str) -> Result<(), String> {
    let said: Value = serde_json::from_str(said).map_err(|why| format!("no result: {why}"))?;
    let number = |key: &str| said[key].as_f64().ok_or_else(|| format!("no '{key}' in its result"));
    runs.rate.push(number("packets")? / number("seconds")?);
    runs.alloc.push(number("alloc_ns")?);
    runs.free.push(number("free_ns")?);
    runs.rare.push(number("rare_us")?);
    runs.stall.push(number("stall_us")?);
    runs.stalls.push(number("stalls")?);
    runs.drains.push(number("drains")?);
    runs.trims.push(number("trims")?);
    for (key, sample) in [("bucket", &mut runs.bucket), ("held", &mut runs.held)] {
        said[key].as_array().into_iter().flatten().filter_map(Value::as_f64).for_each(|value| sample.push(value));
    }
    Ok(())
}

pub(super) fn as_json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        let runs = &row.runs;
        json!({ "row": row.label, "packets_a_second": runs.rate.json(), "alloc_ns": runs.alloc.json(),
                "free_ns": runs.free.json(), "rare_us": runs.rare.json(), "stall_us": runs.stall.json(),
                "stalls_a_second": runs.stalls.json(), "drains": runs.drains.json(),
                "trims": runs.trims.json(), "bucket": runs.bucket.json(), "held": runs.held.json(),
                "failed": runs.failed })
    };
    let failed = rows.iter().find(|row| row.allocator.name == WEIR && row.runs.failed.is_some());
    json!({ "rows": rows.iter().map(row).collect::<Vec<_>>(),
            "failed": failed.and_then(|row| Some(format!("{}: {}", row.label, row.runs.failed.as_ref()?))) })
}
