//! What a scrape has to tell: the figures of all processes with Weir, as they are now.

use super::labels::Labels;
use crate::inspect::list::{self, Seen};
use crate::inspect::page::{Missing, Page};
use crate::processes::clock::monotonic_ns;
use crate::stat::breakdown::Breakdown;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};
use weir_core::telemetry::tables::{CacheRow, EvictableRow, ZoneRow};

/// One process.
pub struct Figures {
    pub labels: Labels,
    pub memory: Breakdown,
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
        let mut readable = found.readable;
        readable.sort_by_key(|seen| std::cmp::Reverse(seen.stat.rss));
        let left_out = readable.len().saturating_sub(extent.processes);
        readable.truncate(extent.processes);
        let boot = procfs::boot_time_secs().ok();
        let started = |ticks: u64| Some(boot? as f64 + ticks as f64 / procfs::ticks_per_second() as f64);
        let figures = readable.into_iter().map(|Seen { process, stat, page }| {
            let (zones, zones_left_out) = rows(page.zones.read(), ZoneRow::name);
            let (evictable_caches, evictable_left_out) = rows(page.evictable_caches.read(), EvictableRow::name);
            let (caches, caches_left_out) = rows(page.caches.read(), CacheRow::name);
            Figures {
                memory: Breakdown::of(&page, stat.rss * procfs::page_size(), monotonic_ns()),
                started: started(stat.starttime),
                labels: Labels::of(&process, stat.comm),
                page,
                zones,
                evictable_caches,
                caches: if extent.caches { caches } else { Vec::new() },
                rows_left_out: zones_left_out.saturating_add(evictable_left_out).saturating_add(caches_left_out),
            }
        });
        Self { processes: figures.collect(), extent, left_out, unreadable, took: began.elapsed() }
    }
}

/// The rows of a table, each by a name of its own, and how many it has no room for. A program may give two of its
/// caches one name: the second is `name#2`, as two samples with the same labels would make the whole text invalid.
fn rows<R>(table: Option<(impl Iterator<Item = R>, u64)>, name: fn(&R) -> &str) -> (Vec<(String, R)>, u64) {
    let Some((rows, left_out)) = table else { return (Vec::new(), 0) };
    let mut taken = HashSet::new();
    let named = rows.map(|row| {
        let names = std::iter::once(name(&row).to_owned()).chain((2..).map(|n| format!("{}#{n}", name(&row))));
        let free = names.into_iter().find(|name| taken.insert(name.clone()));
        (free.unwrap_or_default(), row)
    });
    (named.collect(), left_out)
}

const NOT_ALLOWED: &str = "not_allowed";
/// Why there are no figures of a process.
const REASONS: [&str; 4] = [NOT_ALLOWED, "not_answering", "not_shared", "other_version"];

fn reason(why: &Missing) -> &'static str {
    match why {
        Missing::NotAllowed => NOT_ALLOWED,
        Missing::NotAnswering => "not_answering",
        Missing::OtherVersion(_) => "other_version",
        // The others are no processes with Weir, and not among those found.
        Missing::NotShared | Missing::NoProcess | Missing::NotLoaded => "not_shared",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::telemetry::tables::name_of;

    #[test]
    fn rows_of_one_name_are_told_apart() {
        let row = |name: &str| ZoneRow { name: name_of(name), ..ZoneRow::default() };
        let table = ["a", "a#2", "a", "b", "a"].map(row).into_iter();
        let (rows, left_out) = rows(Some((table, 3)), ZoneRow::name);
        let names: Vec<_> = rows.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, left_out), (vec!["a", "a#2", "a#3", "b", "a#4"], 3));
    }
}
