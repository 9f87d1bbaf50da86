//! The contents of a scrape: the figures of all processes with Weir, as they are now.

use super::container;
use crate::figures::memory::Memory;
use crate::figures::rows;
use crate::inspect::list::{self, Seen};
use crate::inspect::page::{Missing, Page};
use procfs::process::{Process, Stat};
use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};
use weir_core::telemetry::tables::{CacheRow, EvictableRow, ZoneRow};

/// One process.
pub struct Figures {
    pub labels: Labels,
    pub memory: Memory,
    /// When it was started, seconds since 1970; none if the kernel does not tell when it was booted.
    pub started: Option<f64>,
    pub page: Page,
    pub zones: Vec<(String, ZoneRow)>,
    pub evictable_caches: Vec<(String, EvictableRow)>,
    /// Empty unless they were asked for.
    pub caches: Vec<(String, CacheRow)>,
    /// Rows for which the page has no room.
    pub rows_left_out: u64,
}

/// How much is exported.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Processes at most.
    pub processes: usize,
    /// Whether object caches are.
    pub caches: bool,
}

/// See the module.
pub struct Snapshot {
    /// The largest first.
    pub processes: Vec<Figures>,
    pub extent: Extent,
    /// Processes with Weir beyond the most that are exported.
    pub left_out: usize,
    /// Processes of which there are no figures, by the reason.
    pub unreadable: BTreeMap<&'static str, usize>,
    /// How long it took.
    pub took: Duration,
}

impl Snapshot {
    /// Looks at all processes.
    pub fn take(extent: Extent) -> Self {
        let began = Instant::now();
        let found = list::all();
        // Each reason is told of, also where it is true of no process: a sample that comes and goes cannot be followed.
        let mut unreadable = BTreeMap::from(REASONS.map(|reason| (reason, 0)));
        found.others.iter().for_each(|(_, why)| *unreadable.entry(reason(why)).or_default() += 1);
        *unreadable.entry(NOT_ALLOWED).or_default() += found.not_allowed;
        *unreadable.entry(TOO_MANY_FILES).or_default() += found.not_opened.len();
        let mut readable = found.readable;
        readable.sort_by_key(|seen| std::cmp::Reverse(seen.stat.rss));
        let left_out = readable.len().saturating_sub(extent.processes);
        readable.truncate(extent.processes);
        let boot = procfs::boot_time_secs().ok();
        let started = |ticks: u64| Some(boot? as f64 + ticks as f64 / procfs::ticks_per_second() as f64);
        let figures = readable.into_iter().map(|seen| {
            let memory = seen.memory();
            let Seen { stat, page, .. } = seen;
            let (zones, zones_left) = rows(&page.zones);
            let (evictable, evictable_left) = rows(&page.evictable_caches);
            let (caches, caches_left) = rows(&page.caches);
            Figures {
                memory,
                started: started(stat.starttime),
                labels: Labels::of(stat),
                page,
                zones: named(zones, ZoneRow::name),
                evictable_caches: named(evictable, EvictableRow::name),
                caches: if extent.caches { named(caches, CacheRow::name) } else { Vec::new() },
                rows_left_out: zones_left.saturating_add(evictable_left).saturating_add(caches_left),
            }
        });
        Self { processes: figures.collect(), extent, left_out, unreadable, took: began.elapsed() }
    }
}

/// The process that a sample is of.
pub struct Labels {
    pid: String,
    comm: String,
    cgroup: String,
    /// Empty, which is the same as no label, where the process is in none.
    container: String,
}

impl Labels {
    /// The labels of the process that this line is of.
    pub fn of(stat: Stat) -> Self {
        let cgroup = cgroup_of(&stat);
        let container = container::of_cgroup(&cgroup).unwrap_or_default();
        Self { pid: stat.pid.to_string(), comm: stat.comm, cgroup, container }
    }

    /// These, and those of one of the process's samples.
    pub fn with<'a>(&'a self, of_sample: &'a [(&'static str, &'a str)]) -> SampleLabels<'a> {
        SampleLabels { process: self, of_sample }
    }
}

/// All labels of a sample.
pub struct SampleLabels<'a> {
    process: &'a Labels,
    of_sample: &'a [(&'static str, &'a str)],
}

impl EncodeLabelSet for SampleLabels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        let Labels { pid, comm, cgroup, container } = self.process;
        let of_process = [("pid", pid), ("comm", comm), ("cgroup", cgroup), ("container", container)];
        let mut of_process = of_process.into_iter().filter(|(_, value)| !value.is_empty());
        of_process.try_for_each(|(name, value)| (name, value.as_str()).encode(encoder.encode_label()))?;
        self.of_sample.iter().try_for_each(|label| label.encode(encoder.encode_label()))
    }
}

/// The path of the group that accounts the process's memory. It is version 1's memory controller's where that is in use,
/// else version 2's. Empty if the kernel tells none, or another process has the number by now.
fn cgroup_of(stat: &Stat) -> String {
    let process = Process::new(stat.pid).ok();
    let groups = process.as_ref().and_then(|process| process.cgroups().ok()).map_or(Vec::new(), |groups| groups.0);
    if !process.is_some_and(|it| it.stat().is_ok_and(|now| now.starttime == stat.starttime)) {
        return String::new();
    }
    let memory = groups.iter().find(|group| group.controllers.iter().any(|controller| controller == "memory"));
    memory.or(groups.iter().find(|group| group.hierarchy == 0)).map_or_else(String::new, |group| group.pathname.clone())
}

/// Rows of a table, each by a name of its own. A program may give two of its caches one name. The second is `name#2`, as two
/// samples with the same labels would make the whole text invalid.
fn named<R>(rows: Vec<R>, name: fn(&R) -> &str) -> Vec<(String, R)> {
    let mut taken = HashSet::new();
    let named = rows.into_iter().map(|row| {
        let names = std::iter::once(name(&row).to_owned()).chain((2..).map(|n| format!("{}#{n}", name(&row))));
        let free = names.into_iter().find(|name| taken.insert(name.clone()));
        (free.unwrap_or_default(), row)
    });
    named.collect()
}

const NOT_ALLOWED: &str = "not_allowed";
const TOO_MANY_FILES: &str = "too_many_files";
/// Why there are no figures of a process.
const REASONS: [&str; 5] = [NOT_ALLOWED, "not_answering", "not_shared", "other_version", TOO_MANY_FILES];

fn reason(why: &Missing) -> &'static str {
    match why {
        Missing::NotAllowed => NOT_ALLOWED,
        Missing::TooManyFiles => TOO_MANY_FILES,
        Missing::NotAnswering => "not_answering",
        Missing::OtherVersion(_) => "other_version",
        // The others are no processes with Weir, and not among those found.
        Missing::NotShared | Missing::NoProcess | Missing::NotLoaded => "not_shared",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::telemetry::name::Name;

    #[test]
    fn rows_of_one_name_are_told_apart() {
        let row = |name: &str| ZoneRow { name: Name::new(name.as_bytes()), ..ZoneRow::default() };
        let rows = named(["a", "a#2", "a", "b", "a"].map(row).to_vec(), ZoneRow::name);
        let names: Vec<_> = rows.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "a#2", "a#3", "b", "a#4"]);
    }
}
