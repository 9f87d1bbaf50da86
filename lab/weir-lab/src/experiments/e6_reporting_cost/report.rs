//! E6's tables: pages a second with reporting off and on beside the document's, pauses, and huge pages.

use super::document;
use super::huge_page_counts::{COUNTERS, Huge};
use super::measure::{FORMS, Pause, Point};
use crate::harness::statistics::{Paired, Sample, geometric_mean, student};
use crate::harness::tables::{Table, count, mib, short, spread};

/// What no point may lose.
const TARGET: f64 = 0.01;

/// Prints them.
pub fn print(points: &[Point], pauses: &[Pause], huge: &[Huge]) {
    for (form, _) in FORMS {
        let of_form: Vec<&Point> = points.iter().filter(|point| point.form == form).collect();
        if !of_form.is_empty() {
            println!("## 128 MiB as {form}: pages a second, median (least..most)\n\n{}", faults(&of_form));
            println!("{}\n", judged(&of_form));
        }
    }
    if !pauses.is_empty() {
        println!("## With a pause between the rounds: ms a round of 128 MiB in blocks of 1 MiB\n\n{}", paused(pauses));
        println!("What lay idle for longer than the window was reported, and faults again when it is used again.\n");
    }
    if !huge.is_empty() {
        println!("## Huge pages: MiB at the peak, right after the frees, and 3 s later\n\n{}", huge_pages(huge));
        println!("The counters are the whole machine's, from the frees to the last look.");
    }
}

fn faults(points: &[&Point]) -> Table {
    let mut table = Table::new(["tasks", "off", "on", "on against off", "document: off", "on", "on against off"]);
    for point in points {
        let kind = if point.processes { "process(es)" } else { "thread(s)" };
        let mut row = vec![format!("{} {kind}", point.tasks)];
        row.extend(point.pages.iter().map(|sample| spread(sample, count)));
        row.push(Paired::of(&ratios(point)).to_string());
        if let Some((off, on)) = document::point(point.tasks, point.processes) {
            row.extend([count(off), count(on), percent(on / off)]);
        }
        table.row(row);
    }
    table
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

/// On over off, of each round.
fn ratios(point: &Point) -> Sample {
    point.pages[1].values().zip(point.pages[0].values()).map(|(on, off)| on / off).collect()
}

fn judged(points: &[&Point]) -> String {
    let all: Vec<Sample> = points.iter().map(|point| ratios(point)).collect();
    let each: Vec<Paired> = all.iter().map(Paired::of).collect();
    let worse = each.iter().filter(|point| point.differs() && point.mean < 1.0 - TARGET);
    let means: Sample = each.iter().map(|point| point.mean).collect();
    // A round's ratios at all points are one measurement.
    let of_round = |round: usize| geometric_mean(all.iter().filter_map(|ratios| ratios.values().nth(round)));
    let rounds: Sample = (0..all.first().map_or(0, Sample::len)).filter_map(of_round).collect();
    let theirs = geometric_mean(document::ratios()).unwrap_or(f64::NAN);
    format!(
        "Proven to be worse, and by more than 1 %: {} of {} points. On over off: {} at the worst point, {} at the best. \
         Geometric mean of all: {} (document, its 48 points: {}).",
        worse.count(),
        points.len(),
        percent(means.min()),
        percent(means.max()),
        Paired::of(&rounds),
        percent(theirs)
    )
}

fn paused(pauses: &[Pause]) -> Table {
    let mut table = Table::new(["pause", "off", "on", "on against off"]);
    for pause in pauses {
        let sides = pause.round.iter().map(|sample| spread(sample, short));
        let verdict = student(&pause.round[1], &pause.round[0]).to_string();
        table.row(std::iter::once(format!("{} ms", pause.ms)).chain(sides).chain([verdict]));
    }
    table
}

fn huge_pages(huge: &[Huge]) -> Table {
    let header = ["huge pages", "case", "resident", "AnonHugePages"].map(String::from);
    let mut table = Table::new(header.into_iter().chain(COUNTERS.map(String::from)));
    for run in huge {
        let three = |part: fn(&crate::harness::proc_files::ProcessMemory) -> u64| {
            let looks = [&run.peak, &run.memory[0], &run.memory[1]].map(|memory| mib(part(memory) as f64));
            looks.join(" > ")
        };
        let mut row = vec![run.thp.clone(), run.case.to_string(), three(|m| m.rss), three(|m| m.huge)];
        row.extend(run.splits.iter().map(u64::to_string));
        table.row(row);
    }
    table
}
