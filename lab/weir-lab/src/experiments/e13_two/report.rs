//! E13's table and verdicts.

use super::measure::{Setting, reference};
use super::outcome::Run;
use super::subject::{Subject, WEIR};
use crate::harness::statistics::{Verdict, student};
use crate::harness::tables::{Table, count, mib, short, spread};

const PAGE: f64 = 4096.0;

/// Prints all rows, and Weir against each.
pub fn print(subjects: &[Subject], setting: &Setting) {
    let seconds = f64::from(setting.seconds);
    println!(
        "A cgroup of {} MiB, with as much swap, for {} s. A program serves values of {} KiB by Zipf 0.9, {} MiB of them in\n\
         all; a miss reads the disk (O_DIRECT). Its neighbour's demand swings between 10 and 90 % of the limit, once in {} s.\n",
        setting.limit >> 20,
        setting.seconds,
        setting.block >> 10,
        (setting.block * setting.blocks) >> 20,
        setting.period_ms / 1000
    );
    let header = [
        "cache",
        "requests/s",
        "hits, %",
        "cached, MiB",
        "neighbour, MiB/s",
        "work of both, %",
        "swapped out, MiB",
        "swapped in, MiB",
        "killed",
    ];
    let mut table = Table::new(header);
    for subject in subjects {
        let of = |value: &dyn Fn(&Run) -> f64, show: fn(f64) -> String| spread(&subject.sample(value), show);
        let held = |place: usize| mib(subject.sample(|run| run.cached[place]).median());
        let total = reference(subjects).map(|weir| spread(&subject.total(weir), short));
        table.row([
            subject.label.clone(),
            of(&|run| run.requests / seconds, count),
            of(&|run| 100.0 * run.hits / run.requests, short),
            format!("{} to {}", held(0), held(1)),
            of(&|run| run.neighbour / seconds, count),
            total.unwrap_or_default(),
            of(&|run| run.swap.pages_out as f64 * PAGE, mib),
            of(&|run| run.swap.pages_in as f64 * PAGE, mib),
            subject.runs.iter().map(|run| run.killed).sum::<usize>().to_string(),
        ]);
    }
    println!("{table}");
    println!(
        "Work of both: the mean of each one's work as a share of what it did beside Weir's cache. Swap is machine-wide.\n"
    );
    print_verdicts(subjects);
}

fn print_verdicts(subjects: &[Subject]) {
    let Some(weir) = reference(subjects) else { return };
    let own = weir.total(weir);
    for subject in subjects.iter().filter(|subject| subject.kind != WEIR) {
        let total = subject.total(weir);
        let (more, verdict) = (own.mean() > total.mean(), student(&own, &total));
        let told = if verdict == Verdict::TooFew { format!("({verdict})") } else { verdict.to_string() };
        println!("work of both, {WEIR} against {}: {} {told}", subject.label, if more { "more" } else { "not more" });
    }
}
