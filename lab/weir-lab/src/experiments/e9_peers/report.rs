//! E9's tables: each workload with its verdict, then the geometric means of ratios to the best peer.

use super::measure::{Cell, Row};
use crate::harness::statistics::{Sample, geometric_mean, student};
use crate::harness::tables::{Table, count, mib};

/// What is compared, how a value of it is shown, and from which value of the middle allocator on a workload counts in
/// a mean of ratios.
struct Measure {
    title: &'static str,
    of: fn(&Cell) -> &Sample,
    show: fn(f64) -> String,
    counts_from: f64,
}

/// Host 10 MiB a peak is the program's own pages, and below some hundred faults they are those of its start.
const MEASURES: [Measure; 3] = [
    Measure { title: "Time, ns an operation", of: |cell| &cell.time, show: count, counts_from: 0.0 },
    Measure { title: "Peak resident set, MiB", of: |cell| &cell.peak, show: mib, counts_from: 10.0 * 1_048_576.0 },
    Measure { title: "Minor page faults", of: |cell| &cell.faults, show: count, counts_from: 1_000.0 },
];

/// Prints them all, each title after `section`.
pub fn print(section: &str, names: &[&str], subject: &str, rows: &[Row]) {
    let at = names.iter().position(|name| *name == subject);
    for measure in &MEASURES {
        println!(
            "## {section}{}: median (least..most)\n\n{}",
            measure.title,
            workloads_table(names, at, rows, measure)
        );
    }
    println!("## {section}Geometric means of the ratios of medians\n\n{}", means_table(names, at, rows));
    println!(
        "`to best` divides by the best peer of each workload in turn, `to glibc` by glibc; 1.00 is equal, less is"
    );
    println!("better. Of peaks and faults, workloads count where the middle allocator has 10 MiB and 1,000 faults.\n");
}

/// A row a workload: every allocator's median and spread, the best peer, and the verdict by Student's t.
fn workloads_table(names: &[&str], subject: Option<usize>, rows: &[Row], measure: &Measure) -> Table {
    let verdict = subject.map(|at| ["best peer".to_string(), format!("{} against it", names[at])]);
    let header = ["workload".to_string()].into_iter().chain(names.iter().map(|name| name.to_string()));
    let mut table = Table::new(header.chain(verdict.into_iter().flatten()));
    for (workload, cells) in rows {
        let mut row = vec![workload.name.clone()];
        row.extend(cells.iter().map(|cell| shown(cell, measure)));
        if let Some(at) = subject {
            let best = best_peer(cells, subject, measure);
            row.push(best.map_or("-".into(), |best| names[best].to_string()));
            row.push(
                best.map_or("-".into(), |best| {
                    student((measure.of)(&cells[at]), (measure.of)(&cells[best])).to_string()
                }),
            );
        }
        table.row(row);
    }
    table
}

fn shown(cell: &Cell, measure: &Measure) -> String {
    if cell.failed.is_some() {
        return "failed".into();
    }
    let sample = (measure.of)(cell);
    let show = measure.show;
    format!("{} ({}..{})", show(sample.median()), show(sample.min()), show(sample.max()))
}

fn usable(cell: &Cell, measure: &Measure) -> Option<f64> {
    let median = (measure.of)(cell).median();
    (cell.failed.is_none() && median > 0.0).then_some(median)
}

/// The allocator with the least median, the subject left out.
fn best_peer(cells: &[Cell], subject: Option<usize>, measure: &Measure) -> Option<usize> {
    let peers = (0..cells.len()).filter(|&index| Some(index) != subject);
    let usable = peers.filter_map(|index| Some((index, usable(&cells[index], measure)?)));
    usable.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
}

/// A row an allocator: its geometric mean over the workloads, against the best peer of each and against glibc.
fn means_table(names: &[&str], subject: Option<usize>, rows: &[Row]) -> Table {
    let glibc = names.iter().position(|name| *name == "glibc");
    let mut table = Table::new([
        "allocator",
        "time to best",
        "peak to best",
        "faults to best",
        "time to glibc",
        "peak to glibc",
        "faults to glibc",
        "failed",
    ]);
    for (index, name) in names.iter().enumerate() {
        let to_best = MEASURES.iter().map(|m| mean(index, rows, m, |cells| best_peer(cells, subject, m)));
        let to_glibc = MEASURES.iter().map(|m| mean(index, rows, m, |_| glibc));
        let failed = rows.iter().filter(|(_, cells)| cells[index].failed.is_some()).count();
        let mut row = vec![name.to_string()];
        row.extend(to_best.chain(to_glibc).map(|mean| mean.map_or("-".into(), |mean| format!("{mean:.2}"))));
        row.push(failed.to_string());
        table.row(row);
    }
    table
}

/// The geometric mean of one allocator's ratios to the `reference` of each workload.
fn mean(index: usize, rows: &[Row], measure: &Measure, reference: impl Fn(&[Cell]) -> Option<usize>) -> Option<f64> {
    geometric_mean(rows.iter().filter_map(|(_, cells)| {
        let base = usable(&cells[reference(cells)?], measure)?;
        let middle = cells.iter().filter_map(|cell| usable(cell, measure)).collect::<Sample>().median();
        (middle >= measure.counts_from).then_some(usable(&cells[index], measure)? / base)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(times: &[f64]) -> Cell {
        Cell { time: times.iter().copied().collect(), ..Cell::default() }
    }

    #[test]
    fn the_best_peer_is_never_the_subject_nor_one_that_failed() {
        let mut cells = vec![cell(&[1.0]), cell(&[3.0]), cell(&[2.0]), cell(&[0.5])];
        cells[3].failed = Some("crashed".into());
        assert_eq!(best_peer(&cells, Some(0), &MEASURES[0]), Some(2));
        assert_eq!(best_peer(&cells, None, &MEASURES[0]), Some(0));
    }

    #[test]
    fn means_are_of_ratios_workload_by_workload() {
        let workload = |name: &str| super::super::measure::Workload {
            name: name.into(),
            fixed_time: false,
            threads: 1,
            about: String::new(),
        };
        let rows = vec![
            (workload("a"), vec![cell(&[2.0]), cell(&[1.0])]),
            (workload("b"), vec![cell(&[800.0]), cell(&[100.0])]),
        ];
        let mean = mean(0, &rows, &MEASURES[0], |cells| best_peer(cells, Some(0), &MEASURES[0]));
        assert!((mean.unwrap() - 4.0).abs() < 1e-9);
    }
}
