//! The runs that a page is about. Each has what its files say, put together.

use super::reading::{self, Contents, Stat, Trace};
use super::records::Cache;
use crate::base::failure::Failure;
use crate::base::units::{bytes, nanoseconds};
use crate::figures::processes::Line;
use crate::figures::released::Released;
use crate::figures::run::Summary;
use crate::figures::times::Times;
use std::path::PathBuf;

/// All that a report tells.
pub struct Comparison {
    /// A run each.
    pub columns: Vec<Column>,
    /// Notes on files that were damaged.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Files of different kinds are one run; of one kind, runs beside each other, in the order in which they are given.
    pub fn read(files: &[PathBuf]) -> Result<Self, Failure> {
        let mut runs = Self { columns: Vec::new(), notes: Vec::new() };
        for path in files {
            let (contents, note) = reading::read(path, files.len() == 1)?;
            runs.notes.extend(note);
            let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            let place = runs.columns.iter().position(|column| column.lacks(&contents)).unwrap_or(runs.columns.len());
            if place == runs.columns.len() {
                runs.columns.push(Column::default());
            }
            runs.columns[place].take(file, contents);
        }
        let lost: u64 =
            runs.columns.iter().filter_map(|it| it.trace.as_ref()).fold(0, |sum, it| sum.saturating_add(it.lost));
        if lost > 0 {
            runs.notes.push(format!("{lost} batches are not in the traces: they came faster than they were read."));
        }
        Ok(runs)
    }
}

/// One run.
#[derive(Default)]
pub struct Column {
    pub files: Vec<String>,
    pub run: Option<Box<Summary>>,
    pub trace: Option<Box<Trace>>,
    pub stat: Option<Box<Stat>>,
}

/// A table for both formats: what it is of, the names of its columns, and its rows.
pub struct Table {
    pub title: &'static str,
    pub names: Vec<&'static str>,
    pub rows: Vec<(String, Vec<String>)>,
}

/// Caches and processes that are listed.
const LISTED: usize = 10;

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
    ("processes with Weir", |it| it.run.as_ref().map(|run| run.totals.processes.to_string())),
    ("largest resident set", |it| it.peak().map(bytes)),
    ("last resident set", |it| it.last().map(bytes)),
    ("released", |it| it.released().map(|all| bytes(all.total()))),
    ("for being idle", |it| it.released().map(|all| bytes(all.idle))),
    ("under pressure", |it| it.released().map(|all| bytes(all.pressure))),
    ("at a limit", |it| it.released().map(|all| bytes(all.limit))),
    ("when asked", |it| it.released().map(|all| bytes(all.asked))),
    ("touched again soon after", Column::touched_again),
    ("pressure events", |it| it.run.as_ref().map(|run| run.totals.pressure_events.to_string())),
    ("half answered within", |it| it.run.as_ref()?.totals.pressure_latency_p50_ns.map(nanoseconds)),
    ("all answered within", |it| it.run.as_ref()?.totals.pressure_latency_max_ns.map(nanoseconds)),
    ("batches released", Column::batches),
    ("batches refused by the kernel", Column::refused),
    ("huge pages kept, split", |it| {
        it.run.as_ref().map(|run| format!("{}, {}", run.totals.huge_pages_given_whole, run.totals.huge_pages_split))
    }),
    ("fast path: allocations", |it| it.run.as_ref()?.totals.alloc_hit_rate.map(percent)),
    ("fast path: frees", |it| it.run.as_ref()?.totals.free_hit_rate.map(percent)),
];

fn percent(part: f64) -> String {
    format!("{:.2} %", part * 100.0)
}

fn ending(run: &Summary) -> String {
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
    fn lacks(&self, contents: &Contents) -> bool {
        match contents {
            Contents::Run(_) => self.run.is_none(),
            Contents::Trace(_) => self.trace.is_none(),
            Contents::Stat(_) => self.stat.is_none(),
        }
    }

    fn take(&mut self, file: String, contents: Contents) {
        self.files.push(file);
        match contents {
            Contents::Run(run) => self.run = Some(run),
            Contents::Trace(trace) => self.trace = Some(trace),
            Contents::Stat(stat) => self.stat = Some(stat),
        }
    }

    /// The run's name: its files.
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
        // A run that was not measured at its end was not sampled then.
        self.run.as_ref().map_or_else(sampled, |run| run.last_resident_bytes)
    }

    /// The bytes released: of the run, which counts all; else of the process; else as far as the trace has it.
    pub fn released(&self) -> Option<Released> {
        let process = || self.stat.as_ref()?.process.as_ref().map(|it| it.released_bytes);
        let traced = || self.trace.as_ref().map(|trace| trace.of_causes());
        self.run.as_ref().map(|run| run.totals.given_back_bytes).or_else(process).or_else(traced)
    }

    fn touched_again(&self) -> Option<String> {
        let process = || self.stat.as_ref()?.process.as_ref().map(|it| it.touched_again_bytes);
        self.run.as_ref().map(|run| run.totals.refault_bytes).or_else(process).map(bytes)
    }

    fn batches(&self) -> Option<String> {
        let traced = || self.trace.as_ref().map(|trace| trace.batches);
        self.run.as_ref().map(|run| run.totals.reports).or_else(traced).map(|n| n.to_string())
    }

    fn refused(&self) -> Option<String> {
        let traced = || self.trace.as_ref().map(|trace| trace.refused);
        self.run.as_ref().map(|run| run.totals.report_failures).or_else(traced).map(|n| n.to_string())
    }

    /// A table of the kinds of memory that were released.
    pub fn kinds(&self) -> Option<Table> {
        let kinds = self.trace.as_ref()?.kinds.iter().filter(|(_, (batches, _))| *batches > 0);
        let row =
            |(kind, (batches, size)): (&String, &(u64, u64))| (kind.clone(), vec![batches.to_string(), bytes(*size)]);
        let rows: Vec<_> = kinds.map(row).collect();
        let names = vec!["what was released", "batches", "bytes"];
        (!rows.is_empty()).then_some(Table { title: "", names, rows })
    }

    /// The rows of the table of reclaim that say something; `None`: there are none.
    pub fn reclaim(&self) -> Option<Table> {
        let run = self.run.as_ref()?;
        let mut rows = run.totals.reclaim.rows(run.elapsed_seconds);
        rows.retain(|(_, value)| !is_zero(value));
        let rows: Vec<_> = rows.into_iter().map(|(name, value)| (name.to_owned(), vec![value])).collect();
        (!rows.is_empty()).then_some(Table { title: "Reclaim", names: vec!["reclaim", ""], rows })
    }

    /// A table of the holders of memory at the last sample: caches of a process, or processes.
    pub fn holders(&self) -> Option<Table> {
        let stat = self.stat.as_ref()?;
        if let Some(table) = &stat.table {
            let row = |line: &Line| {
                let sizes = [Some(line.memory.resident_bytes), line.memory.live_bytes, line.memory.idle_bytes];
                let sizes = sizes.map(|size| size.map_or("unknown".into(), bytes)).into_iter();
                (format!("{} ({})", line.command, line.pid), sizes.chain([bytes(line.released_bytes)]).collect())
            };
            let rows = table.processes.iter().take(LISTED).map(row).collect();
            let title = "The processes with the largest resident sets, at the end";
            return Some(Table { title, names: vec!["process", "resident", "live", "idle", "released"], rows });
        }
        let row = |cache: &Cache| {
            let released = cache.trimmed_bytes.saturating_add(cache.drained_bytes);
            let figures = [bytes(cache.size), cache.used.to_string(), bytes(cache.slab_bytes), bytes(released)];
            (cache.name.clone(), figures.to_vec())
        };
        let caches = stat.process.as_ref()?.caches.iter().filter(|cache| cache.slab_bytes > 0);
        let rows: Vec<_> = caches.take(LISTED).map(row).collect();
        let title = "The caches with the most memory, at the end";
        (!rows.is_empty()).then_some(Table {
            title,
            names: vec!["cache", "object", "in use", "slabs", "released"],
            rows,
        })
    }

    /// The histograms that have a time in them, and what they are of.
    pub fn times(&self) -> Vec<(String, Times)> {
        let process = self.stat.as_ref().and_then(|stat| stat.process.as_ref());
        let of_process = process.into_iter().flat_map(|process| &process.times);
        let mut all: Vec<_> = of_process.map(|times| (times.of.clone(), times.histogram.clone())).collect();
        // The trace has the same times, as far as it goes.
        if let Some(trace) = self.trace.as_ref().filter(|_| all.iter().all(|(of, _)| of != RELEASES)) {
            all.push((RELEASES.into(), Times::from(trace.times.clone())));
        }
        all.retain(|(_, times)| !times.counts().is_empty());
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
