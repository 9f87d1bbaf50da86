//! The tables of scaling: throughput by threads, time by live memory, and their verdicts.

use super::measure::{Cell, Curve};
use crate::harness::statistics::{Sample, geometric_mean, student};
use crate::harness::tables::{Table, count, short, spread};

/// Prints them.
pub fn print(names: &[&str], subject: &str, curves: &[Curve], heap: Option<&Curve>) {
    for curve in curves {
        println!("## {}: operations a second, median (least..most)\n", curve.name);
        println!("{}", table(names, curve, "threads", |cell| spread(&throughput(&cell.time), count)));
    }
    if let Some(heap) = heap {
        println!("## {}: ns an operation, median (least..most)\n", heap.name);
        println!("{}", table(names, heap, "GiB live", |cell| spread(&cell.time, short)));
        println!("An operation frees a random block of 16 B to 64 KiB, allocates another and touches its pages.\n");
    }
    if !curves.is_empty() {
        println!("## Geometric mean of time to the best peer of each workload\n\n{}", means(names, subject, curves));
    }
    if let Some(at) = names.iter().position(|name| *name == subject) {
        println!("## {subject} against the best peer, time\n");
        for (curves, unit) in [(curves, "threads"), (heap.map_or(&[][..], std::slice::from_ref), "GiB live")] {
            if !curves.is_empty() {
                println!("{}", verdicts(names, at, curves, unit));
            }
        }
    }
    println!("With more threads than CPUs, the work is the same machine's: level is as good as it gets.");
    println!("xmalloc works in pairs: its one thread is two.");
}

fn throughput(ns: &Sample) -> Sample {
    ns.values().map(|ns| 1e9 / ns).collect()
}

fn header(curve: &Curve, first: &str, unit: &str) -> Table {
    let points = curve.points.iter().map(|(at, _)| format!("{at} {unit}"));
    Table::new(std::iter::once(first.to_string()).chain(points))
}

fn table(names: &[&str], curve: &Curve, unit: &str, show: impl Fn(&Cell) -> String) -> Table {
    let mut table = header(curve, "allocator", unit);
    for (index, name) in names.iter().enumerate() {
        let cells = curve.points.iter().map(|(_, cells)| match &cells[index].failed {
            Some(_) => "failed".into(),
            None => show(&cells[index]),
        });
        table.row(std::iter::once(name.to_string()).chain(cells));
    }
    table
}

/// The allocator with the least median time, the subject left out.
fn best_peer(cells: &[Cell], subject: Option<usize>) -> Option<usize> {
    let peers = (0..cells.len()).filter(|&index| Some(index) != subject && cells[index].failed.is_none());
    peers.min_by(|&a, &b| cells[a].time.median().total_cmp(&cells[b].time.median()))
}

fn means(names: &[&str], subject: &str, curves: &[Curve]) -> Table {
    let at = names.iter().position(|name| *name == subject);
    let mut table = header(&curves[0], "allocator", "threads");
    for (index, name) in names.iter().enumerate() {
        let cells = (0..curves[0].points.len()).map(|point| {
            let ratios = curves.iter().filter_map(|curve| {
                let cells = &curve.points[point].1;
                let best = best_peer(cells, at)?;
                cells[index].failed.is_none().then(|| cells[index].time.median() / cells[best].time.median())
            });
            geometric_mean(ratios).map_or("-".into(), |mean| format!("{mean:.2}"))
        });
        table.row(std::iter::once(name.to_string()).chain(cells));
    }
    table
}

fn verdicts(names: &[&str], at: usize, curves: &[Curve], unit: &str) -> Table {
    let mut table = header(&curves[0], "workload", unit);
    for curve in curves {
        let cells = curve.points.iter().map(|(_, cells)| match best_peer(cells, Some(at)) {
            Some(best) if cells[at].failed.is_none() => {
                format!("{}: {}", names[best], student(&cells[at].time, &cells[best].time))
            }
            _ => "-".into(),
        });
        table.row(std::iter::once(curve.name.clone()).chain(cells));
    }
    table
}
