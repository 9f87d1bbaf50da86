//! E11, the sweep: what a free and a malloc cost at every size from 8 B to 64 MiB, so that no cliff stays unseen.
//!
//! By time, it tells the worst ratio of the subject to the best peer, at which size, and to whom. Peers count that hold at most
//! 1.3 times its memory. It also tells the subject's largest jump between neighbouring sizes; --svg FILE draws the curves.
//!
//! By `instructions`, which the gate runs, it fails where neighbouring sizes differ by 3 times and no row of `known.rs` says so.
//! A system call counts as 1,000. The option --only takes instructions, untouched, first-byte, whole, calloc, aligned, steps,
//! doubling, handover.

#[cfg(target_arch = "x86_64")]
mod cliffs;
#[cfg(target_arch = "x86_64")]
mod instructions;
#[cfg(target_arch = "x86_64")]
mod known;

use crate::harness::chart::{Panel, draw};
use crate::harness::prelude::*;
use std::collections::BTreeMap;

const INSTRUCTIONS: &str = "instructions";
const PATTERNS: [&str; 8] = ["untouched", "first-byte", "whole", "calloc", "aligned", "steps", "doubling", "handover"];
/// Larger blocks are measured for longer, and not in a quick run.
const LARGE: u64 = 4 << 20;
const LARGEST: u64 = 64 << 20;
/// How much more than the subject a peer may hold.
const MEMORY: f64 = 1.3;
const RANGES: [(u64, &str); 5] =
    [(1 << 10, "to 1 KiB"), (32 << 10, "to 32 KiB"), (1 << 20, "to 1 MiB"), (LARGE, "to 4 MiB"), (u64::MAX, "above")];

/// By size: ns an operation, and the peak.
type Curve = BTreeMap<u64, [Sample; 2]>;

pub fn run(lab: &mut Lab) -> Result<()> {
    let chosen = lab.chosen(&[&[INSTRUCTIONS], &PATTERNS[..]].concat())?;
    let subject = lab.args.subject.clone();
    #[cfg(target_arch = "x86_64")]
    if chosen.contains(&INSTRUCTIONS)
        && let Ok(allocator) = lab.allocator(&subject)
    {
        instructions::judge(lab, &allocator)?;
    }
    let (allocators, is_few) = (lab.allocators.clone(), lab.args.quick && lab.args.only.is_empty());
    let (mut panels, mut worsts, mut jumps) = (Vec::new(), Vec::new(), Vec::new());
    let patterns = chosen.into_iter().filter(|pattern| *pattern != INSTRUCTIONS);
    for pattern in patterns.filter(|pattern| !is_few || matches!(*pattern, "first-byte" | "steps")) {
        let is_threaded = matches!(pattern, "untouched" | "first-byte" | "whole") && !lab.args.quick;
        for threads in if is_threaded { &[1, 2, 8][..] } else { &[1] } {
            let mut curves: Vec<Curve> = allocators.iter().map(|_| Curve::new()).collect();
            for (_, turn) in turns(lab.args.rounds, allocators.len()) {
                eprintln!("sweep: {pattern} on {threads} thread(s): {}", allocators[turn]);
                if let Err(why) =
                    measure(lab, &format!("pattern={pattern} threads={threads}"), &allocators[turn], &mut curves[turn])
                {
                    println!("{pattern} on {}: {why:#}\n", allocators[turn]);
                    if allocators[turn].name == subject {
                        lab.fail(format!("{pattern}: {why:#}"));
                    }
                }
            }
            let name = format!("{pattern}, {threads} thread(s)");
            if let Some(at) = allocators.iter().position(|allocator| allocator.name == subject) {
                worsts.push(row(&name, |range| worst(&allocators, at, &curves, range)));
                jumps.push(row(&name, |range| jump(&curves[at], range)));
            }
            let points =
                |curve: &Curve| curve.iter().map(|(size, [ns, _])| (*size as f64, ns.median())).collect::<Vec<_>>();
            let named = allocators.iter().map(|a| a.name.clone()).zip(curves.iter().map(points)).collect::<Vec<_>>();
            lab.note(&name, json!(named));
            panels.push(Panel { title: format!("{name}: ns of processor time an operation, by size"), curves: named });
        }
    }
    let head = || ["pattern"].into_iter().chain(RANGES.iter().map(|range| range.1));
    if !worsts.is_empty() {
        println!("## The worst ratio of {subject} to the best peer\n\n{}", table(head(), worsts));
        println!("## The largest jump of {subject} between neighbouring sizes\n\n{}", table(head(), jumps));
    }
    lab.args.svg.as_ref().map_or(Ok(()), |path| draw(path, &panels, true, |size| bytes(size as u64)))
}

fn measure(lab: &Lab, words: &str, allocator: &Allocator, curve: &mut Curve) -> Result<()> {
    let parts = [(8, LARGE, lab.pick(10, 3)), (LARGE + 1, LARGEST, 20)];
    for (from, to, ms) in parts.into_iter().take(lab.pick(2, 1)) {
        let command = load(allocator, &format!("sweep {words} from={from} to={to} ms={ms}"))?;
        for line in run_child(command, Duration::from_secs(600), "sweep")?.output.lines() {
            let said: Value = serde_json::from_str(line).with_context(|| format!("'{line}' is no figure"))?;
            let [ns, peak] = curve.entry(number(&said, "size")? as u64).or_default();
            ns.0.push(number(&said, "ns")?);
            peak.0.push(number(&said, "peak_kib")?);
        }
    }
    Ok(())
}

fn row(name: &str, cell: impl Fn((u64, u64)) -> Option<String>) -> Vec<String> {
    let starts = std::iter::once(0).chain(RANGES.iter().map(|range| range.0));
    let cells = starts.zip(RANGES).map(|(from, (to, _))| cell((from, to)).unwrap_or_else(|| "-".into()));
    [name.to_string()].into_iter().chain(cells).collect()
}

fn points(curve: &Curve, (from, to): (u64, u64)) -> impl Iterator<Item = (u64, &[Sample; 2])> {
    curve.range(from + 1..=to).map(|(&size, point)| (size, point))
}

fn worst(allocators: &[Allocator], at: usize, curves: &[Curve], range: (u64, u64)) -> Option<String> {
    let ratio = |(size, own): (u64, &[Sample; 2])| {
        let others = curves.iter().zip(allocators).enumerate().filter(|(index, _)| *index != at);
        let peers = others.filter_map(|(_, (curve, allocator))| Some((curve.get(&size)?, allocator)));
        let near = peers.filter(|(point, _)| point[1].median() <= MEMORY * own[1].median());
        let (best, allocator) = near.min_by(|a, b| a.0[0].median().total_cmp(&b.0[0].median()))?;
        Some((own[0].median() / best[0].median(), size, allocator))
    };
    let (ratio, size, allocator) = points(&curves[at], range).filter_map(ratio).max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!("{} at {} ({allocator})", short(ratio), bytes(size)))
}

fn jump(curve: &Curve, range: (u64, u64)) -> Option<String> {
    let all: Vec<(u64, &[Sample; 2])> = points(curve, range).collect();
    let steps = all.windows(2).map(|two| (two[1].1[0].median() / two[0].1[0].median(), two[1].0));
    let (ratio, size) = steps.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!("{} at {}", short(ratio), bytes(size)))
}

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
        points.iter().map(|&(size, ns, peak)| (size, [ns, peak].map(|value| Sample(vec![value])))).collect()
    }

    #[test]
    fn the_worst_ratio_leaves_out_those_that_hold_much_more() {
        let curves = [
            curve(&[(64, 10.0, 1.0), (128, 30.0, 1.0)]),
            curve(&[(64, 5.0, 1.0), (128, 10.0, 2.0)]),
            curve(&[(128, 20.0, 1.0)]),
        ];
        let names = ["own", "a", "b"].map(|name| Allocator::none().with(name.into(), &[]));
        assert_eq!(worst(&names, 0, &curves, (0, 1024)).as_deref(), Some("2.00 at 64 B (a)"));
    }

    #[test]
    fn jumps_are_between_neighbours() {
        let own = curve(&[(64, 10.0, 1.0), (128, 12.0, 1.0), (256, 60.0, 1.0), (512, 61.0, 1.0)]);
        assert_eq!(jump(&own, (0, 1024)).as_deref(), Some("5.00 at 256 B"));
        assert_eq!(jump(&own, (512, 1024)), None);
    }
}
