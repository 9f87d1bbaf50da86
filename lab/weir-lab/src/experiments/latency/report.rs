//! The tables of tail latency: a distribution an allocator, and the verdict on p99.9 by Student's t.

use super::measure::{CALLS, Cell, EVENT_GAP, QUANTILES, Row, Setting};
use crate::harness::statistics::{Sample, student};
use crate::harness::tables::{Table, count, spread};

/// Prints them.
pub fn print(names: &[&str], subject: &str, rows: &[Row]) {
    for (setting, cells) in rows {
        for (call, name) in CALLS.iter().enumerate() {
            println!("## {name}, {}: ns, median (least..most) of the runs\n", described(setting));
            println!("{}", table(names, cells, call, setting.pressure));
        }
    }
    if let Some(at) = names.iter().position(|name| *name == subject) {
        println!("## {subject} against the best peer, p99.9\n\n{}", verdicts(names, at, rows));
    }
    let clock: Sample = rows.iter().flat_map(|(_, cells)| cells.iter().flat_map(|cell| cell.clock.values())).collect();
    println!(
        "Reading the clock costs {:.0} ns (median), which is in every figure. Where threads are more than CPUs,",
        clock.median()
    );
    println!("the longest calls are those in which the kernel ran another thread: under every allocator alike.");
}

fn described(setting: &Setting) -> String {
    let pressure = format!("a pressure event every {} ms", EVENT_GAP.as_millis());
    format!("{} threads, {}", setting.threads, if setting.pressure { pressure } else { "no pressure".into() })
}

fn table(names: &[&str], cells: &[Cell], call: usize, pressure: bool) -> Table {
    let events = pressure.then_some("events taken");
    let mut table = Table::new(std::iter::once("allocator").chain(QUANTILES).chain(events));
    for (name, cell) in names.iter().zip(cells) {
        let mut row = vec![name.to_string()];
        match &cell.failed {
            Some(_) => row.push("failed".into()),
            None => row.extend(cell.calls[call].iter().map(|sample| spread(sample, count))),
        }
        if pressure && cell.failed.is_none() {
            row.push(cell.events.to_string());
        }
        table.row(row);
    }
    table
}

fn verdicts(names: &[&str], at: usize, rows: &[Row]) -> Table {
    let p999 = QUANTILES.iter().position(|name| *name == "p99.9").unwrap_or(0);
    let mut table = Table::new(["load", "malloc", "free"]);
    for (setting, cells) in rows {
        let verdict = |call: usize| {
            let of = |index: usize| &cells[index].calls[call][p999];
            let peers = (0..cells.len()).filter(|&index| index != at && cells[index].failed.is_none());
            let best = peers.min_by(|&a, &b| of(a).median().total_cmp(&of(b).median()));
            match best {
                Some(best) if cells[at].failed.is_none() => format!("{}: {}", names[best], student(of(at), of(best))),
                _ => "-".into(),
            }
        };
        table.row([described(setting), verdict(0), verdict(1)]);
    }
    table
}
