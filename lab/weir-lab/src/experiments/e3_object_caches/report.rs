//! E3's tables: throughput by where buffers come from, the three ways of a twentieth of the memory, idle caches.

use super::measure::{CLASSES, IdleCase, Load, Row};
use crate::harness::statistics::student;
use crate::harness::tables::{Table, mib, short, spread};

/// Without a limit of memory.
pub fn throughput(rows: &[Row]) {
    println!("## All the memory it wants: buffers of 4 to 128 KiB in equal counts\n");
    let mut table =
        Table::new(["buffers from", "MiB/s, median (least..most)", "resident at the end, MiB", "caches against it"]);
    for row in rows {
        let verdict = if row.label == rows[0].label { String::new() } else { against(&rows[0], row) };
        table.row([row.label.clone(), spread(&row.rate, short), spread(&row.end[0], mib), verdict]);
        failed(row);
    }
    println!("{table}\nThe document: caches give 2 x.\n");
}

fn against(subject: &Row, reference: &Row) -> String {
    let times = subject.rate.median() / reference.rate.median();
    format!("{times:.2} x; {}", student(&subject.rate, &reference.rate))
}

fn failed(row: &Row) {
    if let Some(why) = &row.failed {
        println!("{}: failed: {why}", row.label);
    }
}

/// With a twentieth of it.
pub fn pressed(rows: &[Row], load: Load, limit: u64) {
    println!("## A memory cgroup of {} MiB: {}\n", mib(limit as f64), load.what);
    let header = ["back pressure", "MiB/s, median (least..most)", "resident, MiB", "swapped, MiB"];
    let mut table = Table::new(header.into_iter().chain(["caches, MiB, each half second of the last run", "survived"]));
    for row in rows {
        let curve = row.curve.iter().map(|[slabs, _]| mib(*slabs)).collect::<Vec<_>>().join(" ");
        let survived = if row.failed.is_some() { "no" } else { "yes" };
        let [rss, swap] = row.end.each_ref().map(|sample| spread(sample, mib));
        table.row([row.label.clone(), spread(&row.rate, short), rss, swap, curve, survived.into()]);
        failed(row);
    }
    println!("{table}");
    if let [a, b, c] = rows {
        println!("(c) is {} of (b), and {} of (a). The document: (c) is 1.5 x (b).\n", against(c, b), against(c, a));
    }
}

/// Half seconds of a minute.
const MINUTE: usize = 120;

/// What caches hold minute by minute.
pub fn growth(rows: &[Row], load: Load, limit: u64) {
    println!("## Growth: a memory cgroup of {} MiB, {}\n", mib(limit as f64), load.what);
    let mut table = Table::new(["minute", "caches, MiB: mean", "most", "resident, MiB: mean", "most"]);
    for row in rows {
        for (minute, looks) in row.curve.chunks(MINUTE).enumerate() {
            let mut cells = vec![(minute + 1).to_string()];
            for part in 0..2 {
                let mean = looks.iter().map(|look| look[part]).sum::<f64>() / looks.len() as f64;
                cells.push(mib(mean));
                cells.push(mib(looks.iter().map(|look| look[part]).fold(0.0, f64::max)));
            }
            table.row(cells);
        }
        failed(row);
    }
    println!("{table}");
}

/// Bursts, then one size alone.
pub fn idle(case: &IdleCase, warm: usize) {
    println!("## Idle caches: all sizes, then {} KiB alone; MiB of slabs\n", 4 << warm);
    let mut table =
        Table::new(std::iter::once("after".to_string()).chain((0..CLASSES).map(|c| format!("{} KiB", 4 << c))));
    for (when, slabs) in ["all sizes", "one size alone"].iter().zip(&case.slabs) {
        table.row(std::iter::once(when.to_string()).chain(slabs.iter().map(|bytes| mib(*bytes))));
    }
    let [before, after] = case.hits.map(|rate| rate * 100.0);
    println!(
        "{table}\nAllocations of {} KiB that a bucket served: {before:.2} % before, {after:.2} % after.",
        4 << warm
    );
}
