//! How long it takes from a pressure event to the last idle byte given back, and what that costs.
//!
//! A program holds 1 GiB, frees all of it, and sends itself a pressure event, by systemd's protocol; calm windows are
//! put off, so that all of it is still there. It watches its resident set until that has come to rest.

use crate::harness::args::RunArgs;
use crate::harness::child;
use crate::harness::huge_pages;
use crate::harness::pressure_fifo::PressureFifo;
use crate::harness::statistics::Sample;
use crate::harness::tables::{Table, mib, short};
use crate::peers::{Allocator, WEIR};
use serde_json::{Value, json};
use std::time::Duration;

/// An hour: no calm window ends meanwhile.
const NO_CALM: &str = "3600000";
const LIMIT: Duration = Duration::from_secs(300);

/// What was measured with huge pages set to a word, and blocks of mixed sizes or runs of pages alone.
struct Row {
    thp: String,
    mixed: bool,
    ms: Vec<f64>,
    /// Milliseconds of processor time a GiB.
    cpu: Sample,
    /// Bytes that the resident set fell by.
    fell: Sample,
    /// Bytes in huge pages before.
    huge: Sample,
}

/// Runs it and prints its table.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let weir = allocators.iter().find(|a| a.name == WEIR).ok_or("Weir is not here: cargo build --release")?;
    let (events, mib) = if args.quick { (5, 256) } else { (50, 1024) };
    let mut rows = Vec::new();
    for word in ["madvise", "always"] {
        let guard =
            if huge_pages::found()? == word { None } else { huge_pages::set(word).map(Some).unwrap_or_default() };
        if huge_pages::found()? != word {
            eprintln!("report: skipped huge pages '{word}': it needs root to be set");
            continue;
        }
        for mixed in [false, true] {
            eprintln!("report, huge pages {word}, {}: {events} events", shape(mixed));
            rows.push(measure(weir, word, mixed, events, mib)?);
        }
        drop(guard);
    }
    print(&rows);
    let row = |r: &Row| {
        json!({ "thp": r.thp, "mixed": r.mixed, "ms": r.ms, "cpu_ms_a_gib": r.cpu.json(), "fell": r.fell.json(),
                "huge": r.huge.json() })
    };
    Ok(json!({ "mib": mib, "events": events, "rows": rows.iter().map(row).collect::<Vec<_>>() }))
}

fn shape(mixed: bool) -> &'static str {
    if mixed { "objects and runs, 48 B to 3 MiB" } else { "runs, 64 KiB to 1 MiB" }
}

fn measure(weir: &Allocator, thp: &str, mixed: bool, events: usize, mib: usize) -> Result<Row, String> {
    let fifo = PressureFifo::make()?;
    let mut command = child::command(child::load_program()?, weir);
    command.args(["report-time", &format!("mib={mib}"), &format!("events={events}")]);
    command.arg(format!("mixed={}", u8::from(mixed)));
    command.env("MEMORY_PRESSURE_WATCH", fifo.path()).env("WEIR_IDLE_MS", NO_CALM);
    let finished = child::run(command, LIMIT, "report-time")?;
    let told: Value = serde_json::from_str(finished.output.trim()).map_err(|why| format!("no result: {why}"))?;
    let numbers = |name: &str| -> Vec<f64> {
        told[name].as_array().map(|all| all.iter().filter_map(Value::as_f64).collect()).unwrap_or_default()
    };
    let fell = numbers("fell");
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let mut ms: Vec<f64> = numbers("ns").into_iter().map(|ns| ns / 1e6).collect();
    ms.sort_by(f64::total_cmp);
    Ok(Row {
        thp: thp.into(),
        mixed,
        ms,
        cpu: numbers("cpu_ns").iter().zip(&fell).map(|(ns, &fell)| ns / 1e6 / gib(fell)).collect(),
        fell: fell.into_iter().collect(),
        huge: numbers("huge").into_iter().collect(),
    })
}

/// The least of `sorted` that a share `q` of them is not above.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = (sorted.len() as f64 * q).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn print(rows: &[Row]) {
    let mut table = Table::new([
        "blocks",
        "huge pages",
        "idle in huge pages, MiB",
        "given back, MiB",
        "p50, ms",
        "p99, ms",
        "max, ms",
        "CPU ms a GiB",
    ]);
    for row in rows {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|q| short(quantile(&row.ms, q)));
        let cells = [shape(row.mixed).into(), row.thp.clone(), mib(row.huge.median()), mib(row.fell.median())];
        table.row(cells.into_iter().chain([p50, p99, max, short(row.cpu.median())]));
    }
    println!("From a pressure event to the last idle byte given back:\n\n{table}");
}

#[cfg(test)]
mod tests {
    #[test]
    fn quantiles_of_few() {
        let fifty: Vec<f64> = (1..=50).map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|q| super::quantile(&fifty, q)), [25.0, 50.0, 50.0]);
        assert!(super::quantile(&[], 0.5).is_nan());
    }
}
