//! E11, the sweep: what a free and a malloc cost at every size from 8 B to 64 MiB, so that no cliff stays unseen.
//!
//! By time, it tells the subject's largest jump between neighbouring sizes, and at last, for each pattern, the worst ratio of the
//! subject to the best peer, at which size, and to whom. Peers count that hold at most 1.3 times its memory. The worst pattern is
//! the first row; --svg FILE draws the curves.
//!
//! Blocks are replaced by `untouched` ones, by ones of which the `first-byte` is written, or the `whole`. A thread has 64 of one size.
//! With `-one` behind the pattern's name it has one. With `-random` sizes are drawn from half the size to twice it. With `-large` a
//! heap of 512 MiB is live beside them. These can be combined, as in `whole-one-random-large`; they take half as many sizes. The other
//! patterns are calloc, aligned, steps, doubling, and handover.
//!
//! By `instructions`, which the gate runs, it fails where neighbouring sizes differ by 3 times and no row of `known.rs` says so.
//! A system call counts as 1,000. The option --only takes `instructions` and names of patterns.

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
/// Patterns in which blocks are replaced.
const REPLACED: [&str; 3] = ["untouched", "first-byte", "whole"];
const OTHERS: [&str; 5] = ["calloc", "aligned", "steps", "doubling", "handover"];
/// Larger blocks are measured for longer, and not in a quick run.
const LARGE: u64 = 4 << 20;
const LARGEST: u64 = 64 << 20;
/// How much more than the subject a peer may hold.
const MEMORY: f64 = 1.3;
/// Above which size and up to which, and the column's head.
type Range = (u64, u64, &'static str);
const RANGES: [Range; 6] = [
    (0, LARGEST, "all sizes"),
    (0, 1 << 10, "to 1 KiB"),
    (1 << 10, 32 << 10, "to 32 KiB"),
    (32 << 10, 1 << 20, "to 1 MiB"),
    (1 << 20, LARGE, "to 4 MiB"),
    (LARGE, LARGEST, "above"),
];

/// By size: ns an operation, and the peak.
type Curve = BTreeMap<u64, [Sample; 2]>;

pub fn run(lab: &mut Lab) -> Result<()> {
    let patterns = patterns(lab.args.quick);
    let names: Vec<&str> = patterns.iter().map(|(name, _)| name.as_str()).collect();
    let chosen = lab.chosen(&[&[INSTRUCTIONS], &names[..]].concat())?;
    let subject = lab.args.subject.clone();
    #[cfg(target_arch = "x86_64")]
    if chosen.contains(&INSTRUCTIONS)
        && let Ok(allocator) = lab.allocator(&subject)
    {
        instructions::judge(lab, &allocator)?;
    }
    let allocators = lab.allocators.clone();
    let (mut panels, mut worsts, mut jumps) = (Vec::new(), Vec::new(), Vec::new());
    for (pattern, words) in patterns.iter().filter(|(name, _)| chosen.contains(&name.as_str())) {
        let is_threaded = !OTHERS.contains(&pattern.as_str()) && !lab.args.quick;
        for threads in if is_threaded { &[1, 2, 8][..] } else { &[1] } {
            let mut curves: Vec<Curve> = allocators.iter().map(|_| Curve::new()).collect();
            for (_, turn) in turns(lab.args.rounds, allocators.len()) {
                eprintln!("sweep: {pattern} on {threads} thread(s): {}", allocators[turn]);
                if let Err(why) =
                    measure(lab, &format!("{words} threads={threads}"), &allocators[turn], &mut curves[turn])
                {
                    println!("{pattern} on {}: {why:#}\n", allocators[turn]);
                    if allocators[turn].name == subject {
                        lab.fail(format!("{pattern}: {why:#}"));
                    }
                }
            }
            let name = format!("{pattern}, {threads} thread(s)");
            if let Some(at) = allocators.iter().position(|allocator| allocator.name == subject) {
                let (ratio, cells): (Vec<f64>, Vec<String>) =
                    RANGES.map(|range| worst(&allocators, at, &curves, range)).into_iter().unzip();
                worsts.push((ratio[0], [vec![name.clone()], cells].concat()));
                jumps.push([vec![name.clone()], RANGES.map(|range| jump(&curves[at], range)).to_vec()].concat());
            }
            let points =
                |curve: &Curve| curve.iter().map(|(size, [ns, _])| (*size as f64, ns.median())).collect::<Vec<_>>();
            let named = allocators.iter().map(|a| a.name.clone()).zip(curves.iter().map(points)).collect::<Vec<_>>();
            lab.note(&name, json!(named));
            panels.push(Panel { title: format!("{name}: ns of processor time an operation, by size"), curves: named });
        }
    }
    let head = || ["pattern"].into_iter().chain(RANGES.iter().map(|range| range.2));
    if !worsts.is_empty() {
        worsts.sort_by(|a: &(f64, _), b| b.0.total_cmp(&a.0));
        let worsts = worsts.into_iter().map(|(_, cells)| cells);
        println!("## The largest jump of {subject} between neighbouring sizes\n\n{}", table(head(), jumps));
        println!(
            "## The worst ratio of {subject} to the best peer, the worst pattern first\n\n{}",
            table(head(), worsts)
        );
    }
    lab.args.svg.as_ref().map_or(Ok(()), |path| draw(path, &panels, true, |size| bytes(size as u64)))
}

/// Names of the patterns, and words for the load program.
fn patterns(is_quick: bool) -> Vec<(String, String)> {
    let (heap, steps) = if is_quick { ("heap=32", [2, 2]) } else { ("heap=512", [8, 4]) };
    let named = |name: &str| (name.to_string(), format!("pattern={name}"));
    let mut all: Vec<_> = REPLACED.map(named).into();
    for (with, word) in [("one", "live=1"), ("random", "spread=2"), ("large", heap)] {
        let of = |(name, words): &(String, String)| (format!("{name}-{with}"), format!("{words} {word}"));
        all.extend(all.iter().map(of).collect::<Vec<_>>());
    }
    all.extend(OTHERS.map(named));
    all.iter_mut().for_each(|(_, words)| *words += &format!(" steps={}", steps[usize::from(words.contains(' '))]));
    all
}

fn measure(lab: &Lab, words: &str, allocator: &Allocator, curve: &mut Curve) -> Result<()> {
    let parts = [(8, LARGE, lab.pick(10, 1)), (LARGE + 1, LARGEST, 20)];
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

fn points(curve: &Curve, (above, to, _): Range) -> impl Iterator<Item = (u64, &[Sample; 2])> {
    curve.range(above + 1..=to).map(|(&size, point)| (size, point))
}

fn worst(allocators: &[Allocator], at: usize, curves: &[Curve], range: Range) -> (f64, String) {
    let ratio = |(size, own): (u64, &[Sample; 2])| {
        let others = curves.iter().zip(allocators).enumerate().filter(|(index, _)| *index != at);
        let peers = others.filter_map(|(_, (curve, allocator))| Some((curve.get(&size)?, allocator)));
        let near = peers.filter(|(point, _)| point[1].median() <= MEMORY * own[1].median());
        let (best, allocator) = near.min_by(|a, b| a.0[0].median().total_cmp(&b.0[0].median()))?;
        Some((own[0].median() / best[0].median(), size, allocator))
    };
    let worst = points(&curves[at], range).filter_map(ratio).max_by(|a, b| a.0.total_cmp(&b.0));
    let cell = |(ratio, size, peer)| (ratio, format!("{} at {} ({peer})", short(ratio), bytes(size)));
    worst.map_or((0.0, "-".into()), cell)
}

fn jump(curve: &Curve, range: Range) -> String {
    let all: Vec<(u64, &[Sample; 2])> = points(curve, range).collect();
    let steps = all.windows(2).map(|two| (two[1].1[0].median() / two[0].1[0].median(), two[1].0));
    let largest = steps.max_by(|a, b| a.0.total_cmp(&b.0));
    largest.map_or("-".into(), |(ratio, size)| format!("{} at {}", short(ratio), bytes(size)))
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
        assert_eq!(worst(&names, 0, &curves, (0, 1024, "")), (2.0, "2.00 at 64 B (a)".into()));
        assert_eq!(worst(&names, 0, &curves, (128, 1024, "")), (0.0, "-".into()));
    }

    #[test]
    fn jumps_are_between_neighbours() {
        let own = curve(&[(64, 10.0, 1.0), (128, 12.0, 1.0), (256, 60.0, 1.0), (512, 61.0, 1.0)]);
        assert_eq!(jump(&own, (0, 1024, "")), "5.00 at 256 B");
        assert_eq!(jump(&own, (512, 1024, "")), "-");
    }

    #[test]
    fn what_is_replaced_is_measured_in_all_combinations() {
        let all = patterns(false);
        let of = |name: &str| all.iter().find(|(of, _)| of == name).map(|(_, words)| words.as_str());
        assert_eq!(all.len(), 3 * 2 * 2 * 2 + OTHERS.len());
        assert_eq!(of("whole"), Some("pattern=whole steps=8"));
        assert_eq!(of("whole-one-random-large"), Some("pattern=whole live=1 spread=2 heap=512 steps=4"));
    }
}
