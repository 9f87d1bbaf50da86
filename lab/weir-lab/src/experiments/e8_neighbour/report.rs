//! E8's tables.

use super::measure::{HugePageSetting, Runs};
use super::process::{EventRun, HogRun, IdleRun, Setting};
use crate::harness::proc_files::PAGE;
use crate::harness::statistics::{Sample, student};
use crate::harness::tables::{Table, mib, short};

const MIB: f64 = 1_048_576.0;

/// Prints, for each setting of huge pages, A idle and its neighbour, then A under pressure.
pub fn print(names: &[&str], subject: &str, setting: &Setting, parts: &[HugePageSetting]) {
    println!(
        "A peaks at {} MiB in blocks of 16 B to 256 KiB ({}) from 4 threads; other threads free 95 % at random; A goes\n\
         idle. MiB unless said; medians (least..most). B needs {} MiB twice, limit {} MiB, swap traffic machine-wide.\n",
        setting.bytes >> 20,
        setting.mix,
        setting.bytes >> 20,
        setting.limit() >> 20
    );
    for part in parts {
        println!("## Huge pages: {}\n\n### IdleRun, without a limit\n\n{}", part.thp, free_table(names, setting, part));
        println!("### IdleRun in a cgroup, and its neighbour\n\n{}", idle_table(names, setting, part));
        println!("### A pressure event, no neighbour\n\n{}", event_table(names, part));
        print_verdicts(names, subject, setting, part);
    }
    println!("`held` is resident and swapped. FIFO: systemd's MEMORY_PRESSURE_WATCH, `heard` when A had it open.");
    println!("cgroup: its limit falls 1/16 of the peak below what A uses. Both come 0.1 s after the frees.");
}

fn idle_table(names: &[&str], setting: &Setting, part: &HugePageSetting) -> Table {
    let looks = setting.looks.iter().map(|seconds| format!("resident {seconds} s"));
    let b = ["B first, s", "B again, s", "swapped out", "swapped in"].map(String::from);
    let header = ["A on", "held at peak", "freeing, s", "live"].map(String::from).into_iter().chain(looks).chain(b);
    let mut table = Table::new(header);
    if !part.alone.is_empty() {
        let gap = std::iter::repeat_n("-".to_string(), 3 + setting.looks.len());
        table.row(["(none: B alone)".to_string()].into_iter().chain(gap).chain(hog_cells(part.alone.iter())));
    }
    for (name, runs) in names.iter().zip(&part.runs) {
        let of = |value: fn(&IdleRun) -> f64| runs.idle.iter().map(value).collect::<Sample>();
        let mut row = vec![label(name, runs)];
        row.push(cell(&of(|run| run.peak as f64), mib));
        row.push(cell(&of(|run| run.free_seconds), seconds));
        row.push(cell(&of(|run| run.live), mib));
        row.extend((0..setting.looks.len()).map(|look| cell(&resident(runs, look), mib)));
        row.extend(hog_cells(runs.idle.iter().filter_map(|run| run.hog.as_ref())));
        table.row(row);
    }
    table
}

fn free_table(names: &[&str], setting: &Setting, part: &HugePageSetting) -> Table {
    let looks = setting.free_looks.iter().map(|seconds| format!("resident {seconds} s"));
    let mut table = Table::new(["A on", "held at peak", "live"].map(String::from).into_iter().chain(looks));
    for (name, runs) in names.iter().zip(&part.runs) {
        let of = |value: fn(&IdleRun) -> f64| runs.free.iter().map(value).collect::<Sample>();
        let mut row = vec![label(name, runs), cell(&of(|run| run.peak as f64), mib), cell(&of(|run| run.live), mib)];
        let at = |look: usize| runs.free.iter().map(|run| run.looks[look].rss as f64).collect::<Sample>();
        row.extend((0..setting.free_looks.len()).map(|look| cell(&at(look), mib)));
        table.row(row);
    }
    table
}

fn label(name: &str, runs: &Runs) -> String {
    if runs.failed.is_some() { format!("{name} (failed)") } else { name.to_string() }
}

fn resident(runs: &Runs, look: usize) -> Sample {
    runs.idle.iter().map(|run| run.looks[look].rss as f64).collect()
}

fn hog_cells<'a>(hogs: impl Iterator<Item = &'a HogRun> + Clone) -> Vec<String> {
    let of = |value: &dyn Fn(&HogRun) -> f64| hogs.clone().map(value).collect::<Sample>();
    let turn = |number: usize| of(&move |hog: &HogRun| hog.turns.get(number).copied().unwrap_or(f64::NAN));
    vec![
        cell(&turn(0), seconds),
        cell(&turn(1), seconds),
        cell(&of(&|hog| hog.swap.pages_out as f64 * PAGE as f64), mib),
        cell(&of(&|hog| hog.swap.pages_in as f64 * PAGE as f64), mib),
    ]
}

fn event_table(names: &[&str], part: &HugePageSetting) -> Table {
    let mut table = Table::new([
        "A on",
        "heard",
        "FIFO: before",
        "0.1 s after",
        "1 s after",
        "cgroup: held before",
        "0.1 s after",
        "1 s after",
        "resident 0.1 s after",
    ]);
    for (name, runs) in names.iter().zip(&part.runs) {
        let of = |events: &[EventRun], at: usize| {
            events.iter().map(|event| event.held[at].held() as f64).collect::<Sample>()
        };
        let heard = if runs.fifo.iter().any(|event| event.heard) { "yes" } else { "no" };
        let mut row = vec![label(name, runs), heard.to_string()];
        row.extend((0..3).map(|at| cell(&of(&runs.fifo, at), mib)));
        row.extend((0..3).map(|at| cell(&of(&runs.cgroup, at), mib)));
        row.push(cell(&runs.cgroup.iter().map(|event| event.held[1].rss as f64).collect(), mib));
        table.row(row);
    }
    table
}

/// The subject against the best peer, where it was best: what stays at the last look, and B's first turn.
fn print_verdicts(names: &[&str], subject: &str, setting: &Setting, part: &HugePageSetting) {
    let Some(at) = names.iter().position(|name| *name == subject) else { return };
    let last = setting.looks.len() - 1;
    let first_turn =
        |runs: &Runs| runs.idle.iter().filter_map(|run| run.hog.as_ref()?.turns.first().copied()).collect::<Sample>();
    let freeing = |runs: &Runs| runs.idle.iter().map(|run| run.free_seconds).collect::<Sample>();
    let told = |runs: &Runs| runs.fifo.iter().map(|event| event.held[1].held() as f64 / MIB).collect::<Sample>();
    type SampleOf<'a> = &'a dyn Fn(&Runs) -> Sample;
    let measures: [(&str, SampleOf); 4] = [
        ("resident at the last look", &|runs| resident(runs, last)),
        ("freeing phase", &freeing),
        ("held 0.1 s after the FIFO's event", &told),
        ("B's first turn", &first_turn),
    ];
    for (what, of) in measures {
        let peers = (0..names.len()).filter(|&index| index != at && !of(&part.runs[index]).median().is_nan());
        let best = peers.min_by(|&a, &b| of(&part.runs[a]).median().total_cmp(&of(&part.runs[b]).median()));
        if let Some(best) = best {
            let verdict = student(&of(&part.runs[at]), &of(&part.runs[best]));
            println!("- {subject} against {}, the best peer in: {what}: {verdict}", names[best]);
        }
    }
    println!();
}

fn seconds(value: f64) -> String {
    if value < 0.1 { format!("{value:.3}") } else { short(value) }
}

/// The median, and the spread where there is one.
fn cell(sample: &Sample, show: fn(f64) -> String) -> String {
    match sample.len() {
        0 => "-".into(),
        1 => show(sample.median()),
        _ => format!("{} ({}..{})", show(sample.median()), show(sample.min()), show(sample.max())),
    }
}
