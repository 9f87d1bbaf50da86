//! The soak's table, and its verdicts.

use super::measure::{ENOUGH, Phase};
use super::program::{KINDS, SoakFailure};
use crate::harness::tables::{Table, count, mib};

/// By how much the resident set may grow over the second half of a phase: so many bytes, and so large a part of it. A
/// huge page more or less, and a thread's stack, are no leak; what leaks in each cycle is soon more.
const GROWTH: (f64, f64) = (8.0 * 1048576.0, 0.1);

/// A phase's verdict.
pub struct Verdict {
    /// In a word.
    pub word: &'static str,
    /// The reason, or a remark.
    pub why: String,
}

impl Verdict {
    /// Nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.word == "sound"
    }
}

/// Prints it.
pub fn print(phases: &[Phase]) {
    let head = ["huge pages", "cycles"].into_iter().chain(KINDS);
    let mut table =
        Table::new(head.chain(["events", "at the limit", "moves", "resident first, MiB", "last, MiB", "verdict"]));
    for phase in phases {
        let resident = |value: Option<&f64>| value.map_or("-".into(), |&bytes| mib(bytes));
        let cells = [phase.thp.clone(), phase.resident.len().to_string()].into_iter();
        let done = phase.done.iter().map(|&done| whole(done));
        let pressure = [phase.events, phase.squeezes, phase.moves].map(whole);
        let ends = [resident(phase.resident.first()), resident(phase.resident.last())];
        table.row(cells.chain(done).chain(pressure).chain(ends).chain([verdict(phase).word.into()]));
    }
    println!("{table}");
    for phase in phases {
        println!("- Huge pages {}: {}.", phase.thp, verdict(phase).why);
    }
    println!("\nResident at the end of a cycle, where nothing is held.");
}

fn whole(number: u64) -> String {
    if number < 10_000 { number.to_string() } else { count(number as f64) }
}

/// The verdict on a phase.
pub fn verdict(phase: &Phase) -> Verdict {
    let (word, why) = match &phase.ended {
        Some(SoakFailure::Corrupt(what)) => ("CORRUPT", what.clone()),
        Some(SoakFailure::Hung(what)) => ("HANG", what.clone()),
        Some(SoakFailure::Failed(why)) => ("FAILED", why.clone()),
        None => match growth(&phase.resident) {
            None => ("sound", "too few cycles to tell whether it grows".into()),
            Some((grown, allowed)) => {
                let word = if grown > allowed { "GROWTH" } else { "sound" };
                (word, format!("grew by {} MiB over the second half, {} are allowed", mib(grown), mib(allowed)))
            }
        },
    };
    Verdict { word, why }
}

/// What the second half of the values grew by on the straight line that fits them best, and what it may have.
fn growth(values: &[f64]) -> Option<(f64, f64)> {
    let half = &values[values.len() / 2..];
    if half.len() < ENOUGH {
        return None;
    }
    let n = half.len() as f64;
    let (middle, mean) = ((n - 1.0) / 2.0, half.iter().sum::<f64>() / n);
    let offsets = || (0..half.len()).map(|i| i as f64 - middle);
    let slope = offsets().zip(half).map(|(x, y)| x * (y - mean)).sum::<f64>() / offsets().map(|x| x * x).sum::<f64>();
    Some((slope * (n - 1.0), GROWTH.0 + GROWTH.1 * mean))
}

#[cfg(test)]
mod tests {
    use super::growth;

    #[test]
    fn a_leak_is_told_from_noise() {
        let mib = |value: f64| value * 1048576.0;
        let noise: Vec<f64> = (0..100).map(|i| mib(30.0 + f64::from(i * 7 % 5))).collect();
        let (grown, allowed) = growth(&noise).unwrap();
        assert!(grown.abs() < mib(0.5) && allowed > mib(11.0));
        let leak: Vec<f64> = noise.iter().zip(0..).map(|(value, i)| value + mib(0.5) * f64::from(i)).collect();
        let (grown, allowed) = growth(&leak).unwrap();
        assert!(grown > allowed, "{grown} of {allowed}");
        // What comes early and stays is no leak.
        let step: Vec<f64> = (0..100).map(|i| mib(if i < 40 { 10.0 } else { 60.0 })).collect();
        assert!(growth(&step).unwrap().0.abs() < 1.0);
        assert!(growth(&noise[..8]).is_none());
    }
}
