//! The cost of reporting: page_fault1 written anew, tasks as processes and as threads, reporting off and on.
//!
//! A task maps 128 MiB, writes to every page and unmaps it. It does so as `one-block`, which the heap maps on its own, and
//! as `blocks` of 1 MiB. Those are the heap's own pages, and so what it reports. With `pauses` the task rests between its
//! rounds, so that what it freed really is reported before it comes back, and faults again. Goal: at no point proven to be
//! worse by more than 1 %.

use crate::harness::prelude::*;

const BYTES: u64 = 128 << 20;
const TARGET: f64 = 0.01;

pub fn run(lab: &mut Lab) -> Result<()> {
    let subject = lab.allocator(&lab.args.subject)?;
    let sides =
        [subject.with("off".into(), &[("WEIR_REPORT", "0")]), subject.with("on".into(), &[("WEIR_REPORT", "1")])];
    let (ms, quick) = (lab.pick(300, 150), lab.args.quick);
    for part in lab.chosen(&["one-block", "blocks", "pauses"])? {
        let block = if part == "one-block" { BYTES } else { 1 << 20 };
        if part == "pauses" {
            let pauses: Vec<u64> = [100, 1000, 3000].into_iter().filter(|ms| !quick || *ms == 100).collect();
            lab.args.rounds = lab.args.rounds.min(5);
            lab.by_measure(vec![less("ms a round of 128 MiB")], &pauses, &sides, |pause, side| {
                let (ops, seconds) =
                    one(side, &format!("block={block} pause={pause} ms={}", (4 * (pause + 100)).max(1000)))?;
                Ok(vec![seconds * 1e3 / (ops * PAGE / BYTES as f64)])
            });
            continue;
        }
        let kinds = [("process(es)", 1), ("thread(s)", 0)];
        let points = kinds.into_iter().flat_map(|kind| tasks(quick).into_iter().map(move |tasks| (tasks, kind)));
        let points: Vec<_> = points.map(|(tasks, (kind, is))| (format!("{part}, {tasks} {kind}"), tasks, is)).collect();
        let names: Vec<&String> = points.iter().map(|point| &point.0).collect();
        let grid = Grid::measure(vec![more("pages a second")], lab.args.rounds, &names, &sides, |name, side| {
            let (_, tasks, processes) = points.iter().find(|point| &point.0 == *name).unwrap_or(&points[0]);
            let (ops, seconds) = one(side, &format!("tasks={tasks} processes={processes} block={block} ms={ms}"))?;
            Ok(vec![ops / seconds])
        });
        print(&grid);
        lab.keep(&grid);
    }
    Ok(())
}

/// 1 to twice as many as there are CPUs.
fn tasks(quick: bool) -> Vec<usize> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let most = if quick { 2 } else { 2 * cpus };
    (1..=most).filter(|tasks| most <= 8 || tasks.is_power_of_two()).collect()
}

/// Pages, and seconds.
fn one(side: &Allocator, words: &str) -> Result<(f64, f64)> {
    let said = told_by(load(side, &format!("page-fault {words}"))?, 60, "page-fault")?;
    let figures = (number(&said, "ops")?, number(&said, "ns")? / 1e9);
    ensure!(figures.0 > 0.0 && figures.1 > 0.0, "it measured nothing");
    Ok(figures)
}

/// On over off, round by round: both had their turn in the same moment.
fn print(grid: &Grid) {
    let ratios = |case: usize| -> Sample {
        let [off, on] = [0, 1].map(|side| grid.sample(case, side, 0));
        on.0.iter().zip(&off.0).map(|(on, off)| on / off).collect()
    };
    let all: Vec<Sample> = (0..grid.cases.len()).map(ratios).collect();
    let row = |case: usize| {
        let [off, on] = [0, 1].map(|side| grid.sample(case, side, 0).spread(count));
        vec![grid.cases[case].clone(), off, on, Paired::of(&all[case]).to_string()]
    };
    println!("{}", table(["pages a second", "off", "on", "on against off"], (0..all.len()).map(row)));
    let each = all.iter().map(Paired::of);
    let worse = each.filter(|point| point.mean < 1.0 - TARGET && point.mean.ln().abs() > point.interval).count();
    let of_round = |round: usize| geometric_mean(all.iter().filter_map(|ratios| ratios.0.get(round).copied()));
    let rounds: Sample = (0..all.first().map_or(0, |ratios| ratios.0.len())).filter_map(of_round).collect();
    println!("Proven to be worse, and by more than 1 %: {worse} of {} points.", all.len());
    println!("Geometric mean of all, on over off: {}.\n", Paired::of(&rounds));
}
