//! E4's tables: packets, the time of a call, stalls and buckets; and what of it is proven.

use super::measure::{Pressure, Row};
use crate::harness::statistics::student;
use crate::harness::tables::{Table, count, short, spread};
use crate::peers::WEIR;

/// Prints them.
pub fn print(rows: &[Row]) {
    println!("Buffers of 2 KiB, taken on one CPU in bursts of 32 and given back on another; medians (least..most).\n");
    println!("{}", table(rows));
    println!(
        "A burst is 32 calls; the longest stall is that of a burst during which the thread kept its CPU, as far as"
    );
    println!("this kernel knows, which may include CPUs that the machine's host took away.\n");
    println!("{}", verdicts(rows));
    println!("{}", stalls(rows));
}

fn table(rows: &[Row]) -> Table {
    let header =
        ["buffers from", "packets/s", "ns an allocation", "ns a free", "p99.99 of bursts, us", "longest stall, us"];
    let more = ["stalls over 1 ms a second", "bucket, objects", "free in the cache, objects", "drains", "trims"];
    let mut table = Table::new(header.into_iter().chain(more));
    for row in rows {
        if let Some(why) = &row.runs.failed {
            table.row([row.label.as_str(), "failed", why]);
            continue;
        }
        let runs = &row.runs;
        let mut cells = vec![row.label.clone(), spread(&runs.rate, count)];
        cells.extend(
            [&runs.alloc, &runs.free, &runs.rare, &runs.stall, &runs.stalls].map(|sample| spread(sample, short)),
        );
        if matches!(row.from, "cache" | "limited") {
            cells.extend(
                [&runs.bucket, &runs.held, &runs.drains, &runs.trims].map(|s| spread(s, |n| format!("{n:.0}"))),
            );
        }
        table.row(cells);
    }
    table
}

/// Whether drains make bursts longer than a thousandth of a second more frequent.
fn stalls(rows: &[Row]) -> Table {
    let mut table = Table::new(["stalls over 1 ms a second", "against", "difference"]);
    let weir = |from: &str, pressure| {
        rows.iter().find(|row| row.allocator.name == WEIR && row.from == from && row.pressure == pressure)
    };
    let drains = weir("cache", Pressure::Drains);
    for reference in [weir("cache", Pressure::None), weir("none", Pressure::None)].into_iter().flatten() {
        if let Some(drains) = drains {
            let verdict = student(&drains.runs.stalls, &reference.runs.stalls).to_string();
            table.row([drains.label.clone(), reference.label.clone(), verdict]);
        }
    }
    table
}

/// The pairs that the experiment compares.
fn verdicts(rows: &[Row]) -> Table {
    let mut table = Table::new(["packets/s", "against", "difference"]);
    let find = |from: &str, pressure: Pressure| {
        rows.iter().find(|row| row.allocator.name == WEIR && row.from == from && row.pressure == pressure)
    };
    let plain = find("cache", Pressure::None);
    let weir = [
        find("cache", Pressure::Soft),
        find("cache", Pressure::Drains),
        find("limited", Pressure::None),
        find("malloc", Pressure::None),
    ];
    for (subject, reference) in weir.into_iter().flatten().zip(std::iter::repeat(plain)) {
        if let Some(reference) = reference {
            let verdict = student(&subject.runs.rate, &reference.runs.rate).to_string();
            table.row([subject.label.clone(), reference.label.clone(), verdict]);
        }
    }
    let peers = rows.iter().filter(|row| row.allocator.name != WEIR && row.runs.failed.is_none());
    let best = peers.max_by(|a, b| a.runs.rate.median().total_cmp(&b.runs.rate.median()));
    if let Some((plain, best)) = plain.zip(best) {
        let verdict = student(&plain.runs.rate, &best.runs.rate).to_string();
        table.row([plain.label.clone(), format!("{} (the best peer)", best.label), verdict]);
    }
    table
}
