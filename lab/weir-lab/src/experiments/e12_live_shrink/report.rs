//! E12's table.

use super::measure::{Row, Setting};
use crate::harness::tables::{Table, mib, short, spread};

const PAGE: f64 = 4096.0;

/// Prints all rows.
pub fn print(rows: &[Row], setting: &Setting) {
    let header = [
        "program",
        "limit lowered",
        "allocator",
        "in use, MiB",
        "peak",
        "held when lowered",
        "done, ms",
        "killed",
        "refused",
        "swapped, MiB",
        "throughput after, %",
        "passed",
    ];
    let mut table = Table::new(header);
    for row in rows {
        if let Some(why) = &row.failed {
            eprintln!("{} on {}: {why}", row.program, row.allocator);
            table.row([row.program, "", row.allocator.as_str(), "failed"]);
            continue;
        }
        let of = |key: &str, show: fn(f64) -> String| spread(&row.sample(key), show);
        table.row([
            row.program.to_string(),
            row.case.clone(),
            row.allocator.clone(),
            mib(row.sample("in_use").median()),
            mib(row.sample("peak").max()),
            of("held", mib),
            of("done_s", |seconds| short(seconds * 1e3)),
            row.killed().to_string(),
            row.refused().to_string(),
            of("swapped_pages", |pages| mib(pages * PAGE)),
            spread(&row.throughput(), |share| short(share * 100.0)),
            format!("{} of {}", row.passed(), row.rounds.len()),
        ]);
    }
    println!("{table}");
    println!(
        "Data of {} MiB stay; the peak is three times as much besides, and replaces one record of the data with each\n\
         hundred of its own. In use: charged to the group once the data is loaded, before the first peak. The new limit is\n\
         1.2 times that. `max`: memory.max is written; `high then max`: memory.high, and memory.max once no more has been\n\
         charged for 10 ms (refused: not within 5 s). Passed: no kill, no swap, the limit holds within 1 s, requests take\n\
         at most 5 % longer.\n\
         The guest's clock counts its instructions, one a nanosecond.",
        setting.mib
    );
}
