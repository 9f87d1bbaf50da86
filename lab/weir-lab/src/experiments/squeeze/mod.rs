//! `squeeze`: from a pressure event to the last idle page of page pools given back, of pools at rest and of busy ones.

use crate::harness::args::RunArgs;
use crate::harness::child::{command, load_program, run as run_child};
use crate::harness::pressure_fifo::PressureFifo;
use crate::harness::tables::{Table, mib, short};
use crate::peers::{Allocator, WEIR};
use serde_json::{Value, json};
use std::time::Duration;

/// An hour: no calm window ends meanwhile.
const NO_CALM: &str = "3600000";
const LIMIT: Duration = Duration::from_secs(500);

/// Pools, MiB that each keeps, and threads that use them meanwhile.
const CASES: [(usize, usize, usize); 4] = [(1, 4, 0), (100, 4, 0), (100, 4, 1), (1000, 1, 1)];

/// A case's times, ms, sorted.
struct Row {
    case: (usize, usize, usize),
    /// Until no pool had an idle page.
    empty: Vec<f64>,
    /// Until what was idle was not resident any more.
    returned: Vec<f64>,
}

/// Runs it and prints its table.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let weir = allocators.iter().find(|a| a.name == WEIR).ok_or("Weir is not here: cargo build --release")?;
    let events = if args.quick { 5 } else { 200 };
    let mut rows = Vec::new();
    for case in CASES {
        eprintln!("squeeze, {}: {events} events", name(case));
        rows.push(measure(weir, case, events)?);
    }
    print(&rows, events);
    let row = |row: &Row| json!({ "case": name(row.case), "empty_ms": row.empty, "returned_ms": row.returned });
    Ok(json!({ "events": events, "rows": rows.iter().map(row).collect::<Vec<_>>() }))
}

fn name((pools, mib, threads): (usize, usize, usize)) -> String {
    let use_of_them = if threads == 0 { "at rest".into() } else { format!("{threads} thread(s) using them") };
    format!("{pools} pools of {mib} MiB, {use_of_them}")
}

fn measure(weir: &Allocator, case: (usize, usize, usize), events: usize) -> Result<Row, String> {
    let (pools, mib, threads) = case;
    let fifo = PressureFifo::make()?;
    let mut start = command(load_program()?, weir);
    start.arg("page-pools").args([format!("pools={pools}"), format!("mib={mib}"), format!("threads={threads}")]);
    start.arg(format!("events={events}")).env("MEMORY_PRESSURE_WATCH", fifo.path()).env("WEIR_IDLE_MS", NO_CALM);
    let finished = run_child(start, LIMIT, "page-pools")?;
    let told: Value = serde_json::from_str(finished.output.trim()).map_err(|why| format!("no result: {why}"))?;
    let sorted = |name: &str| {
        let numbers = told[name].as_array().into_iter().flatten().filter_map(Value::as_f64);
        let mut ms: Vec<f64> = numbers.map(|ns| ns / 1e6).collect();
        ms.sort_by(f64::total_cmp);
        ms
    };
    Ok(Row { case, empty: sorted("empty_ns"), returned: sorted("returned_ns") })
}

/// The least of `sorted` that a share `q` of them is not above.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = (sorted.len() as f64 * q).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn print(rows: &[Row], events: usize) {
    let mut table =
        Table::new(["pools", "idle, MiB", "empty: p50, ms", "p99", "max", "returned: p50, ms", "p99", "max"]);
    for row in rows {
        let idle = mib((row.case.0 * row.case.1) as f64 * f64::from(1 << 20));
        let times = [&row.empty, &row.returned].into_iter().flat_map(|ms| [0.5, 0.99, 1.0].map(|q| quantile(ms, q)));
        table.row([name(row.case), idle].into_iter().chain(times.map(short)));
    }
    println!(
        "From the moment at which a pressure event is sent (by systemd's protocol, to a program that hears it itself), \
         until no pool has\nan idle page, and until what was idle is not resident any more; {events} events. Goal: p50 \
         at most 1 ms, p99 at most 10 ms.\n\n{table}"
    );
}

#[cfg(test)]
mod tests {
    #[test]
    fn quantiles_of_few() {
        let fifty: Vec<f64> = (1..=50).map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|q| super::quantile(&fifty, q)), [25.0, 50.0, 50.0]);
    }
}
