//! The tables of `fio`.

use super::measure::{Cell, Row};
use super::points::Size;
use super::resident::{LOOKS, Rest};
use crate::harness::nbd_servers::Kind;
use crate::harness::statistics::{Sample, student};
use crate::harness::tables::{Table, mib, short};
use serde_json::{Map, Value, json};

/// Prints the points.
pub fn points(size: &Size, kinds: &[Kind], rows: &[Row]) {
    println!(
        "fio with its NBD engine against each server in turn, on a Unix socket; a file of {} MiB in memory (tmpfs), {} s \
         a run. Medians;\nratios are to the better of the others. Goals: throughput at least 1.2, p99 and processor time \
         below 1.\n",
        size.file >> 20,
        size.seconds
    );
    println!("## Throughput, MiB/s\n\n{}", table(kinds, rows, |cell| &cell.rate, f64::max));
    println!("## p99, us\n\n{}", table(kinds, rows, |cell| &cell.p99, f64::min));
    println!("## Processor time of the server a request, us\n\n{}", table(kinds, rows, |cell| &cell.cpu, f64::min));
    for row in rows {
        for (kind, cell) in kinds.iter().zip(&row.cells) {
            if let Some(why) = &cell.failed {
                println!("{} failed at {}: {why}\n", kind.name(), row.point);
            }
        }
    }
}

fn table(kinds: &[Kind], rows: &[Row], of: fn(&Cell) -> &Sample, better: fn(f64, f64) -> f64) -> Table {
    let names = kinds.iter().map(|kind| kind.name().to_string());
    let mut table = Table::new(
        std::iter::once("load".to_string()).chain(names).chain(["ratio".into(), "difference of means".into()]),
    );
    for row in rows {
        let medians: Vec<f64> = row.cells.iter().map(|cell| of(cell).median()).collect();
        // Weir's is the first.
        let best = medians[1..].iter().copied().fold(f64::NAN, better);
        let against = medians[1..].iter().position(|&median| median == best);
        let verdict = against.map_or("-".into(), |at| student(of(&row.cells[0]), of(&row.cells[at + 1])).to_string());
        let cells = medians.iter().map(|&median| short(median));
        table.row(std::iter::once(row.point.to_string()).chain(cells).chain([short(medians[0] / best), verdict]));
    }
    table
}

/// Prints what is resident.
pub fn residents(size: &Size, kinds: &[Kind], rests: &[Rest]) {
    println!(
        "## Resident set, MiB\n\n{} clients at rest; the load is 1 MiB in sequence, depth 32, 8 clients, and {} s pass \
         after it. Medians; weir-nbd's\ngoals: 6 MiB at rest, a tenth of the others' with clients at rest. The file \
         is tmpfs's: servers that map it would count it.\n",
        size.clients,
        size.later + 1
    );
    let mut table = Table::new(std::iter::once("server").chain(LOOKS));
    for (kind, rest) in kinds.iter().zip(rests) {
        let looks = rest.looks.iter().map(|look| mib(look.median()));
        table.row(std::iter::once(kind.name().to_string()).chain(looks));
    }
    println!("{table}");
}

/// Everything that was measured.
pub fn as_json(kinds: &[Kind], rows: &[Row], rests: &[Rest]) -> Value {
    let by_kind = |all: Vec<Value>| -> Value {
        kinds.iter().map(|kind| kind.name().to_string()).zip(all).collect::<Map<_, _>>().into()
    };
    let cell = |cell: &Cell| {
        json!({ "mib_s": cell.rate.json(), "p99_us": cell.p99.json(), "cpu_us": cell.cpu.json(),
                "failed": cell.failed })
    };
    let point = |row: &Row| (row.point.to_string(), by_kind(row.cells.iter().map(cell).collect()));
    let rest = |rest: &Rest| {
        let looks = LOOKS.iter().map(|look| look.to_string()).zip(rest.looks.iter().map(Sample::json));
        json!({ "bytes": looks.collect::<Map<_, _>>(), "failed": rest.failed })
    };
    let cells = rows.iter().flat_map(|row| &row.cells).find_map(|cell| cell.failed.clone());
    let failed = cells.or_else(|| rests.iter().find_map(|rest| rest.failed.clone()));
    json!({ "points": rows.iter().map(point).collect::<Map<_, _>>(),
            "resident": by_kind(rests.iter().map(rest).collect()), "failed": failed })
}
