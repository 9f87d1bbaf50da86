//! Whether the files of cgroup v2 reach an idle heap: in a guest, as the machine's own groups may be of v1.
//!
//! An idle process that keeps what it freed, and one that needs more than is left below their group's limit, without
//! swap. With reporting on the first is to release memory before the second is stalled; off is the control.

use crate::guest::kernel;
use crate::guest::{self, Image, Machine};
use crate::harness::args::RunArgs;
use crate::harness::child;
use crate::harness::statistics::Sample;
use crate::harness::tables::{Table, mib, spread};
use crate::peers::{Allocator, WEIR};
use serde_json::{Value, json};
use std::time::Duration;

const GUEST_MIB: u64 = 1024;
const MACHINE: Machine = Machine { mib: GUEST_MIB, reporting: false, translations: 32 };
const LIMIT: Duration = Duration::from_secs(400);
const SIDES: [(&str, &[(&str, &str)]); 2] = [("on", &[]), ("off", &[("WEIR_REPORT", "0")])];

/// One case of one side, over all runs.
struct Row {
    case: String,
    side: &'static str,
    runs: Vec<Value>,
}

/// Runs it and prints its table.
pub fn run(args: &RunArgs, allocators: Vec<Allocator>) -> Result<Value, String> {
    let weir = allocators.iter().find(|a| a.name == WEIR).ok_or("Weir is not here: cargo build --release")?;
    let (emulator, kernel) = (guest::emulator()?, kernel::find()?);
    println!(
        "A guest of {emulator}, software emulation, Linux {}, cgroup v2, {GUEST_MIB} MiB, no swap.\n",
        kernel.release
    );
    let mut rows: Vec<Row> = Vec::new();
    for round in 0..args.rounds {
        for (side, env) in SIDES.iter().filter(|(side, _)| !args.quick || *side == "on") {
            eprintln!("groups, round {}: reporting {side}", round + 1);
            let image = Image::build(&kernel, weir, env)?;
            let finished = child::run(image.command(MACHINE, &["groups".into()]), LIMIT, "the guest")?;
            for line in finished.output.lines() {
                let told: Value =
                    serde_json::from_str(line).map_err(|why| format!("the guest said '{line}': {why}"))?;
                let case = told["case"].as_str().ok_or_else(|| format!("the guest said '{line}'"))?;
                match rows.iter_mut().find(|row| row.case == case && row.side == *side) {
                    Some(row) => row.runs.push(told),
                    None => rows.push(Row { case: case.into(), side, runs: vec![told] }),
                }
            }
        }
    }
    if rows.is_empty() {
        return Err("the guest said nothing".into());
    }
    print(&rows);
    let gave_way = |row: &Row| row.count("b_done").min(row.count("a_lives")) == row.runs.len();
    if let Some(row) = rows.iter().find(|row| row.side == "on" && !gave_way(row)) {
        return Err(format!(
            "{}: the idle heap released nothing, and one of the two was killed or waited 30 s",
            row.case
        ));
    }
    Ok(json!(rows.iter().map(|row| json!({ "side": row.side, "runs": row.runs })).collect::<Vec<_>>()))
}

impl Row {
    fn sample(&self, key: &str) -> Sample {
        self.runs.iter().filter_map(|run| run[key].as_f64()).collect()
    }

    fn count(&self, key: &str) -> usize {
        self.runs.iter().filter(|run| run[key] == true).count()
    }
}

fn print(rows: &[Row]) {
    let header = [
        "limit",
        "reporting",
        "idle heap before, MiB",
        "after",
        "the other's time, ms",
        "done",
        "alive",
        "events",
        "kills",
    ];
    let mut table = Table::new(header);
    for row in rows {
        let of = |key: &str, show: fn(f64) -> String| spread(&row.sample(key), show);
        let done = |key: &str| format!("{} of {}", row.count(key), row.runs.len());
        let events: Sample =
            row.runs.iter().filter_map(|run| Some(run["high"].as_f64()? + run["max"].as_f64()?)).collect();
        table.row([
            row.case.clone(),
            row.side.into(),
            of("a_before", mib),
            of("a_after", mib),
            of("b_ms", whole),
            done("b_done"),
            done("a_lives"),
            spread(&events, whole),
            of("oom_kill", whole),
        ]);
    }
    println!("{table}");
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}
