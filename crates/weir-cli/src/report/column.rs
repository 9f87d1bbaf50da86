//! One run: what its files say, put together.

use super::reading::{Contents, Stat, Trace};
use super::records::{CAUSES, Kind, Run};
use crate::base::units::{bytes, nanoseconds};
use weir_core::telemetry::histogram::BUCKETS;

/// See the module.
#[derive(Default)]
pub struct Column {
    pub files: Vec<String>,
    pub run: Option<Box<Run>>,
    pub trace: Option<Box<Trace>>,
    pub stat: Option<Box<Stat>>,
}

/// A histogram of times: what they are of, and how many are in `[2^i, 2^(i+1))` ns.
pub struct Distribution {
    pub of: String,
    pub counts: Vec<u64>,
}

/// The times of releases, as `weir stat` calls them.
const RELEASES: &str = "release of a batch";

/// A figure, and where it comes from.
type Figure = (&'static str, fn(&Column) -> Option<String>);

/// The figures that are compared.
const FIGURES: [Figure; 21] = [
    ("program", Column::program),
    ("outcome", |it| it.run.as_ref().map(|run| run.verdict.clone())),
    ("ended", |it| it.run.as_ref().map(|run| ending(run))),
    ("time", |it| it.run.as_ref().map(|run| format!("{:.1} s", run.elapsed_seconds))),
    ("processes with Weir", |it| it.run.as_ref().map(|run| run.processes.to_string())),
    ("largest resident set", |it| it.peak().map(bytes)),
    ("last resident set", |it| it.last().map(bytes)),
    ("released", |it| it.released().map(|all| bytes(all.iter().fold(0, |sum, part| sum.saturating_add(*part))))),
    ("for being idle", |it| it.released().map(|all| bytes(all[0]))),
    ("under pressure", |it| it.released().map(|all| bytes(all[1]))),
    ("at a limit", |it| it.released().map(|all| bytes(all[2]))),
    ("when asked", |it| it.released().map(|all| bytes(all[3]))),
    ("touched again soon after", Column::touched_again),
    ("pressure events", |it| it.run.as_ref().map(|run| run.pressure_events.to_string())),
    ("half answered within", |it| it.run.as_ref()?.pressure_latency_p50_ns.map(nanoseconds)),
    ("all answered within", |it| it.run.as_ref()?.pressure_latency_max_ns.map(nanoseconds)),
    ("batches released", Column::batches),
    ("batches refused by the kernel", Column::refused),
    ("huge pages kept, split", |it| {
        it.run.as_ref().map(|run| format!("{}, {}", run.huge_pages_given_whole, run.huge_pages_split))
    }),
    ("fast path: allocations", |it| it.run.as_ref()?.alloc_hit_rate.map(percent)),
    ("fast path: frees", |it| it.run.as_ref()?.free_hit_rate.map(percent)),
];

fn percent(part: f64) -> String {
    format!("{:.2} %", part * 100.0)
}

fn ending(run: &Run) -> String {
    match (run.exit_status, run.signal) {
        (Some(status), _) => format!("exit status {status}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "unknown".into(),
    }
}

/// The rows of [`FIGURES`] that say something of one of the runs at least: a name, and a value for each run.
pub fn compared(columns: &[Column]) -> impl Iterator<Item = (&'static str, Vec<Option<String>>)> {
    let rows = FIGURES.iter().map(|(name, figure)| (*name, columns.iter().map(figure).collect::<Vec<_>>()));
    rows.filter(|(_, values)| values.iter().flatten().any(|value| !is_zero(value)))
}

/// Whether a figure says that there was nothing.
fn is_zero(value: &str) -> bool {
    value.split([' ', ',']).all(|word| matches!(word, "" | "0" | "0.0" | "B" | "ns" | "s"))
}

impl Column {
    /// Whether it has nothing of this kind yet.
    pub fn lacks(&self, kind: Kind) -> bool {
        match kind {
            Kind::Run => self.run.is_none(),
            Kind::Trace => self.trace.is_none(),
            Kind::Stat => self.stat.is_none(),
        }
    }

    pub fn take(&mut self, file: String, contents: Contents) {
        self.files.push(file);
        match contents {
            Contents::Run(run) => self.run = Some(run),
            Contents::Trace(trace) => self.trace = Some(trace),
            Contents::Stat(stat) => self.stat = Some(stat),
        }
    }

    /// What it is called: its files.
    pub fn name(&self) -> String {
        self.files.join(", ")
    }

    fn program(&self) -> Option<String> {
        let process = || self.stat.as_ref()?.process.as_ref().map(|it| format!("{} ({})", it.command, it.pid));
        let table = || self.stat.as_ref()?.table.as_ref().map(|it| format!("{} processes", it.processes.len()));
        self.run.as_ref().map(|run| run.program.clone()).or_else(process).or_else(table)
    }

    fn peak(&self) -> Option<u64> {
        let sampled = || self.stat.as_ref()?.samples.points().iter().map(|point| point.memory.resident_bytes).max();
        self.run.as_ref().and_then(|run| run.peak_resident_bytes).or_else(sampled)
    }

    fn last(&self) -> Option<u64> {
        let sampled = || self.stat.as_ref()?.samples.points().last().map(|point| point.memory.resident_bytes);
        self.run.as_ref().and_then(|run| run.last_resident_bytes).or_else(sampled)
    }

    /// Bytes released by cause: of the run, which counts all; else of the process; else as far as the trace has them.
    pub fn released(&self) -> Option<[u64; CAUSES.len()]> {
        let process = || self.stat.as_ref()?.process.as_ref().map(|it| it.released_bytes.all());
        let traced = || self.trace.as_ref().map(|trace| trace.of_causes());
        self.run.as_ref().map(|run| run.given_back_bytes.all()).or_else(process).or_else(traced)
    }

    fn touched_again(&self) -> Option<String> {
        let process = || self.stat.as_ref()?.process.as_ref().map(|it| it.touched_again_bytes);
        self.run.as_ref().map(|run| run.refault_bytes).or_else(process).map(bytes)
    }

    fn batches(&self) -> Option<String> {
        let traced = || self.trace.as_ref().map(|trace| trace.batches);
        self.run.as_ref().map(|run| run.reports).or_else(traced).map(|n| n.to_string())
    }

    fn refused(&self) -> Option<String> {
        let traced = || self.trace.as_ref().map(|trace| trace.refused);
        self.run.as_ref().map(|run| run.report_failures).or_else(traced).map(|n| n.to_string())
    }

    /// The rows of the table of reclaim that say something; `None`: there are none.
    pub fn reclaim(&self) -> Option<Vec<(&'static str, String)>> {
        let run = self.run.as_ref()?;
        let mut rows = run.reclaim.rows(run.elapsed_seconds);
        rows.retain(|(_, value)| !is_zero(value));
        (!rows.is_empty()).then_some(rows)
    }

    /// The histograms that have a time in them.
    pub fn distributions(&self) -> Vec<Distribution> {
        let process = self.stat.as_ref().and_then(|stat| stat.process.as_ref());
        let of_process = process.into_iter().flat_map(|process| &process.times);
        let mut all: Vec<_> =
            of_process.map(|times| Distribution { of: times.of.clone(), counts: cut(&times.histogram) }).collect();
        // The trace has the same times, as far as it goes.
        if let Some(trace) = self.trace.as_ref().filter(|_| all.iter().all(|it| it.of != RELEASES)) {
            all.push(Distribution { of: RELEASES.into(), counts: cut(&trace.times) });
        }
        all.retain(|it| !it.counts.is_empty());
        all
    }

    /// The time of the first thing that it tells, ns; of things with times.
    pub fn start_ns(&self) -> Option<u64> {
        let stat = self.stat.as_ref().filter(|stat| stat.is_timed);
        let sample = stat.and_then(|stat| stat.samples.points().first()).map(|point| point.at);
        let batch = self.trace.as_ref().filter(|trace| !trace.bins.is_empty()).map(|trace| trace.bins.start_ns);
        [sample, batch].into_iter().flatten().min()
    }
}

/// A histogram up to its last time.
fn cut(counts: &[u64]) -> Vec<u64> {
    let counts = &counts[..counts.len().min(BUCKETS)];
    counts[..counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1)].to_vec()
}

impl Distribution {
    /// Times in all.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The upper end of the bucket in which this share of the times ends, ns.
    pub fn below(&self, share: f64) -> u64 {
        // As real numbers, of which no sum is too large.
        let all: f64 = self.counts.iter().map(|&count| count as f64).sum();
        let (rank, mut sum) = (all * share, 0.0);
        let is_it = |count: &u64| {
            sum += *count as f64;
            sum >= rank
        };
        let last = self.counts.len().saturating_sub(1);
        2 << self.counts.iter().position(is_it).unwrap_or(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_end_at_the_end_of_their_bucket() {
        let it = Distribution { of: String::new(), counts: cut(&[0, 0, 0, 98, 0, 2, 0]) };
        assert_eq!((it.counts.len(), it.count(), it.below(0.5), it.below(0.99)), (6, 100, 16, 64));
        let any = Distribution { of: String::new(), counts: cut(&[u64::MAX; 70]) };
        assert_eq!((any.counts.len(), any.count(), any.below(1.0)), (BUCKETS, u64::MAX, 2 << (BUCKETS - 1)));
    }
}
