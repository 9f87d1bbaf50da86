//! The sweep's tables: where the subject is farthest behind, and where its own cost jumps between neighbouring sizes.

use super::measure::{Curve, Point, Row};
use crate::harness::tables::{Table, short};

/// A peer that holds more than this many times the subject's memory is not one to be compared with.
const MEMORY: f64 = 1.3;
/// Ranges of sizes, by their upper ends, and what they are called.
const RANGES: [(u64, &str); 5] =
    [(1 << 10, "to 1 KiB"), (32 << 10, "to 32 KiB"), (1 << 20, "to 1 MiB"), (4 << 20, "to 4 MiB"), (u64::MAX, "above")];

/// Prints both tables.
pub fn print(names: &[&str], subject: &str, rows: &[Row]) {
    let Some(at) = names.iter().position(|name| *name == subject) else { return };
    println!(
        "## The worst ratio of {subject} to the best peer\n\nProcessor time of an operation; at which size, and to whom. \
         Only peers that hold at most {MEMORY} times {subject}'s memory count.\n"
    );
    table(rows, |curves, range| worst(names, at, curves, range));
    println!("## The largest jump of {subject} between neighbouring sizes\n");
    table(rows, |curves, range| jump(&curves[at], range));
}

fn table(rows: &[Row], cell: impl Fn(&[Curve], (u64, u64)) -> Option<String>) {
    let head = ["pattern", "threads"].into_iter().chain(RANGES.iter().map(|(_, name)| *name));
    let mut table = Table::new(head);
    for (setting, curves) in rows {
        let mut from = 0;
        let cells = RANGES.iter().map(|&(to, _)| {
            let range = (from, to);
            from = to;
            cell(curves, range).unwrap_or_else(|| "-".into())
        });
        let cells: Vec<String> = cells.collect();
        table.row([setting.pattern.to_string(), setting.threads.to_string()].into_iter().chain(cells));
    }
    println!("{table}");
}

/// A curve's points with sizes above `from`, up to `to`.
fn points(curve: &Curve, (from, to): (u64, u64)) -> impl Iterator<Item = (u64, &Point)> {
    curve.points.range(from + 1..=to).map(|(&size, point)| (size, point))
}

fn worst(names: &[&str], at: usize, curves: &[Curve], range: (u64, u64)) -> Option<String> {
    let ratio = |(size, own): (u64, &Point)| {
        let others = curves.iter().zip(names).enumerate().filter(|(index, _)| *index != at);
        let peers = others.filter_map(|(_, (curve, name))| Some((curve.points.get(&size)?, *name)));
        let near = peers.filter(|(point, _)| point.peak.median() <= MEMORY * own.peak.median());
        let (best, name) = near.min_by(|a, b| a.0.ns.median().total_cmp(&b.0.ns.median()))?;
        Some((own.ns.median() / best.ns.median(), size, name))
    };
    let (ratio, size, name) = points(&curves[at], range).filter_map(ratio).max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!("{} at {} ({name})", short(ratio), bytes(size)))
}

fn jump(curve: &Curve, range: (u64, u64)) -> Option<String> {
    let all: Vec<(u64, &Point)> = points(curve, range).collect();
    let steps = all.windows(2).map(|two| (two[1].1.ns.median() / two[0].1.ns.median(), two[1].0));
    let (ratio, size) = steps.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!("{} at {}", short(ratio), bytes(size)))
}

/// A size as people write it.
fn bytes(size: u64) -> String {
    match size {
        0..1024 => format!("{size} B"),
        1024..0x10_0000 => format!("{} KiB", short(size as f64 / 1024.0)),
        _ => format!("{} MiB", short(size as f64 / f64::from(1 << 20))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64, f64)]) -> Curve {
        let mut curve = Curve::default();
        for &(size, ns, peak) in points {
            let point = curve.points.entry(size).or_default();
            point.ns.push(ns);
            point.peak.push(peak);
        }
        curve
    }

    #[test]
    fn the_worst_ratio_leaves_out_those_that_hold_much_more() {
        let curves = [
            curve(&[(64, 10.0, 1.0), (128, 30.0, 1.0)]),
            curve(&[(64, 5.0, 1.0), (128, 10.0, 2.0)]),
            curve(&[(128, 20.0, 1.0)]),
        ];
        assert_eq!(worst(&["own", "a", "b"], 0, &curves, (0, 1024)).as_deref(), Some("2.00 at 64 B (a)"));
    }

    #[test]
    fn jumps_are_between_neighbours() {
        let own = curve(&[(64, 10.0, 1.0), (128, 12.0, 1.0), (256, 60.0, 1.0), (512, 61.0, 1.0)]);
        assert_eq!(jump(&own, (0, 1024)).as_deref(), Some("5.00 at 256 B"));
        assert_eq!(jump(&own, (512, 1024)), None);
    }
}
