//! All that the page of one process says.

use crate::base::output::printable_line;
use crate::base::table::{head, row};
use crate::base::units::{bytes, monotonic_ns, nanoseconds};
use crate::figures::idle_window::IdleWindow;
use crate::figures::less::Less;
use crate::figures::memory::Memory;
use crate::figures::released::Released;
use crate::figures::times::Times;
use crate::figures::{level, rows};
use crate::inspect::asked::Told;
use crate::inspect::page::Inspected;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::tables::{CacheRow, EvictableRow, ZoneRow};

/// Rows of a table that are shown without `--all`.
const ROWS: usize = 10;

/// See the module.
#[derive(Serialize)]
pub struct Report {
    pid: i32,
    command: String,
    /// When these figures were read, ns of the monotonic clock, as `weir trace` has it.
    at_ns: u64,
    #[serde(flatten)]
    memory: Memory,
    /// Why it could not be told to measure now.
    not_asked: Option<String>,
    /// How long idle memory stays, as far as it is known.
    #[serde(flatten)]
    window: Option<IdleWindow>,
    /// What it would cost to have less memory, as far as it is known.
    less: Option<Less>,
    pressure: &'static str,
    /// How long ago the process last heard of pressure, ns; none: never. One that is stopped does not hear that it is over.
    pressure_heard_ns_ago: Option<u64>,
    background_thread: bool,
    released_bytes: Released,
    /// Bytes that were touched again soon after they were released.
    touched_again_bytes: u64,
    times: [TimesOf; 3],
    #[serde(serialize_with = "zones")]
    zones: Vec<ZoneRow>,
    #[serde(serialize_with = "caches")]
    caches: Vec<CacheRow>,
    #[serde(serialize_with = "evictable_caches")]
    evictable_caches: Vec<EvictableRow>,
    /// Caches and zones for which the page has no room.
    left_out: u64,
}

/// A histogram of times.
#[derive(Serialize)]
struct TimesOf {
    of: &'static str,
    count: u64,
    median_ns: Option<u64>,
    p99_ns: Option<u64>,
    most_ns: Option<u64>,
    histogram: Times,
}

impl TimesOf {
    fn new(of: &'static str, histogram: Times) -> Self {
        let [median_ns, p99_ns, most_ns] = [0.5, 0.99, 1.0].map(|share| histogram.below(share));
        Self { of, count: histogram.count(), median_ns, p99_ns, most_ns, histogram }
    }
}

/// The rows of a table as JSON objects: a name, then figures.
macro_rules! written {
    ($($name:ident: $Row:ident,)*) => {$(
        fn $name<S: Serializer>(rows: &[$Row], to: S) -> Result<S::Ok, S::Error> {
            let figures = |row: &$Row| row.fields().map(|(field, value)| (field.to_owned(), Value::from(value)));
            let name = |row: &$Row| ("name".to_owned(), Value::from(row.name()));
            to.collect_seq(rows.iter().map(|row| Value::from_iter([name(row)].into_iter().chain(figures(row)))))
        }
    )*};
}

written! { zones: ZoneRow, caches: CacheRow, evictable_caches: EvictableRow, }

impl Report {
    /// The report of a process, by its answer.
    pub fn of(inspected: &Inspected, told: Told) -> Self {
        let (page, window) = (&told.page, told.window());
        let stat = inspected.process.stat().ok();
        let resident = stat.as_ref().map_or(0, |stat| stat.rss * procfs::page_size());
        let (zones, zones_left) = rows(&page.zones);
        let (mut caches, caches_left) = rows::<CacheRow, _>(&page.caches);
        caches.sort_by_key(|cache| std::cmp::Reverse(cache.slab_bytes));
        let (evictable_caches, evictable_left) = rows(&page.evictable_caches);
        let at_ns = monotonic_ns();
        Self {
            pid: inspected.process.pid(),
            command: stat.map_or_else(String::new, |stat| stat.comm),
            at_ns,
            memory: Memory::of(page, resident, at_ns),
            not_asked: told.silent,
            window,
            less: Less::of(page),
            pressure: level(page.pressure_level.load(Relaxed)),
            pressure_heard_ns_ago: Some(page.pressure_heard_at.load(Relaxed))
                .filter(|&at| at > 0)
                .map(|at| at_ns.saturating_sub(at)),
            background_thread: page.background.load(Relaxed) != 0,
            released_bytes: Released::by([&**page]),
            touched_again_bytes: page.refault_bytes.load(Relaxed),
            times: [
                TimesOf::new("pressure event to memory released", Times::from(&page.pressure_latency)),
                TimesOf::new("release of a batch", Times::from(&page.release_times)),
                TimesOf::new("allocation that reclaimed by itself", Times::from(&page.direct_stalls)),
            ],
            zones,
            caches,
            evictable_caches,
            left_out: zones_left.saturating_add(caches_left).saturating_add(evictable_left),
        }
    }

    /// For people; with all rows of its tables, or with the largest.
    pub fn text(&self, has_all: bool) -> String {
        let measured = match self.memory.measured_ns_ago {
            Some(ago) => format!("measured {} ago", nanoseconds(ago)),
            None if self.memory.parts().is_none() => "not measured yet".to_owned(),
            None => "not measured yet: the heap is small".to_owned(),
        };
        let mut text = format!("{} ({}), {measured}\n", printable_line(&self.command), self.pid);
        if let Some(why) = &self.not_asked {
            text += &format!("it could not be told to measure now: {}\n", printable_line(why));
        }
        text += &self.memory.to_string();
        if let Some(window) = &self.window {
            text += &format!("idle memory is kept for {window}\n");
        }
        if let Some(less) = &self.less {
            text += &format!("{less}\n");
        }
        let (by_cause, again) = (self.released_bytes.by_cause(), bytes(self.touched_again_bytes));
        let heard = self.pressure_heard_ns_ago.filter(|_| self.pressure != level(0));
        let heard = heard.map_or_else(String::new, |ago| format!(", heard {} ago", nanoseconds(ago)));
        text += &format!("pressure {}{heard}; released: {by_cause}; touched again {again}\n", self.pressure);
        for TimesOf { of, count, median_ns, p99_ns, most_ns, .. } in self.times.iter().filter(|it| it.count > 0) {
            let [half, most, all] = [median_ns, p99_ns, most_ns].map(|ns| ns.map_or("-".into(), nanoseconds));
            text += &format!("{of}: {count} times, half below {half}, 99 % below {most}, all below {all}\n");
        }
        text += &shown(&self.zones, has_all, zone_head(), zone, |zone| zone.used.max(zone.idle));
        text += &shown(&self.caches, has_all, cache_head(), cache, |cache| cache.slab_bytes);
        text += &shown(&self.evictable_caches, has_all, evictable_head(), evictable, |cache| cache.bytes);
        if self.left_out > 0 {
            text += &format!("and {} more, for which the page of statistics has no room\n", self.left_out);
        }
        text
    }
}

/// A table: all rows in their order, or the largest of those that hold anything, and how many are not shown.
fn shown<Row>(
    all: &[Row],
    has_all: bool,
    head: String,
    line: fn(&Row) -> String,
    held: impl Fn(&Row) -> u64,
) -> String {
    let mut rows: Vec<&Row> = all.iter().collect();
    if !has_all {
        rows.retain(|row| held(row) > 0);
        rows.sort_by_key(|row| std::cmp::Reverse(held(row)));
        rows.truncate(ROWS);
    }
    let lines: String = rows.iter().map(|row| line(row)).collect();
    match (rows.len(), all.len() - rows.len()) {
        (0, _) => String::new(),
        (_, 0) => format!("\n{head}{lines}"),
        (_, hidden) => format!("\n{head}{lines}and {hidden} more that hold less, or nothing: --all shows them\n"),
    }
}

const ZONE: [isize; 6] = [-24, 10, 10, 10, 10, 10];

fn zone_head() -> String {
    head(ZONE, ["ZONE", "SPACE", "USED", "IDLE", "LIMIT", "FREE"])
}

fn zone(zone: &ZoneRow) -> String {
    let [space, used, idle] = [zone.bytes, zone.used, zone.idle].map(bytes);
    let known = |figure: u64| if zone.capacity == 0 { "-".to_owned() } else { bytes(figure) };
    row(ZONE, [printable_line(zone.name()), space, used, idle, known(zone.capacity), known(zone.free)])
}

const CACHE: [isize; 10] = [-24, 10, 7, 9, 9, 9, 9, 13, 6, 10];

fn cache_head() -> String {
    let names = ["CACHE", "SLABS", "SIZE", "USED", "FREE:CPU", "DEPOT", "SLAB", "REQUESTS", "FAIL", "RELEASED"];
    head(CACHE, names)
}

fn cache(it: &CacheRow) -> String {
    let counts = [it.size, it.used, it.free_cpu, it.free_depot, it.free_slab, it.requests, it.failures];
    let [size, used, cpu, depot, slab, requests, fail] = counts.map(|count| count.to_string());
    let [slabs, released] = [it.slab_bytes, it.trimmed_bytes.saturating_add(it.drained_bytes)].map(bytes);
    let name = printable_line(it.name());
    row(CACHE, [name, slabs, size, used, cpu, depot, slab, requests, fail, released])
}

const EVICTABLE: [isize; 8] = [-24, 10, 10, 10, 9, 8, 9, 9];

fn evictable_head() -> String {
    let names = ["EVICTABLE CACHE", "HELD", "MAY HOLD", "AT MOST", "ENTRIES", "HITS", "EVICTED", "PRESSURE"];
    head(EVICTABLE, names)
}

fn evictable(it: &EvictableRow) -> String {
    let [held, target] = [it.bytes, it.target_bytes].map(bytes);
    let most = if it.max_bytes == u64::MAX { "-".into() } else { bytes(it.max_bytes) };
    let lookups = it.hits.saturating_add(it.misses);
    let hits = if lookups == 0 { "-".into() } else { format!("{:.1} %", it.hits as f64 * 100.0 / lookups as f64) };
    let counts = [it.entries, it.evicted_for_room, it.evicted_for_pressure];
    let [entries, evicted, pressure] = counts.map(|count| count.to_string());
    row(EVICTABLE, [printable_line(it.name()), held, target, most, entries, hits, evicted, pressure])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::page::Page;
    use weir_core::telemetry::name::Name;
    use weir_core::telemetry::stats::PAGE_BYTES;

    #[test]
    fn any_page_is_shown_without_harm() {
        let inspected = Inspected::new(std::process::id() as i32).unwrap();
        for byte in [0, 1, 0x1b, 0x7f, 0x80, 0xff] {
            let page = Page::of(&[byte; PAGE_BYTES]).unwrap();
            let settings = [("idle_ms".to_owned(), u64::MAX)].into();
            let report = Report::of(&inspected, Told { page, settings, mergeable: None, silent: None });
            assert!(serde_json::to_string(&report).is_ok());
            assert!(!report.text(true).chars().any(|c| c.is_control() && c != '\n'), "{byte}");
        }
    }

    #[test]
    fn a_level_is_shown_with_when_it_was_heard_of() {
        let inspected = Inspected::new(std::process::id() as i32).unwrap();
        let text = |level: u64| {
            let page = Page::of(&[0; PAGE_BYTES]).unwrap();
            page.pressure_level.store(level, Relaxed);
            page.pressure_heard_at.store(monotonic_ns() - 3_000_000_000, Relaxed);
            Report::of(&inspected, Told { page, settings: [].into(), mergeable: None, silent: None }).text(false)
        };
        assert!(text(2).contains("pressure severe, heard 3.0"), "{}", text(2));
        assert!(text(0).contains("pressure none; released"), "{}", text(0));
    }

    /// The process chose it: it cannot add lines of its own.
    #[test]
    fn a_name_stays_on_its_line() {
        let name = Name::new(b"a\nb");
        let text = zone(&ZoneRow { name, ..ZoneRow::default() })
            + &cache(&CacheRow { name, ..CacheRow::default() })
            + &evictable(&EvictableRow { name, ..EvictableRow::default() });
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn a_cache_without_a_bound_has_none() {
        let of = |max_bytes| evictable(&EvictableRow { max_bytes, ..EvictableRow::default() });
        assert!(of(7 << 20).contains("7.0 MiB") && !of(u64::MAX).contains("EiB"), "{}", of(u64::MAX));
    }

    #[test]
    fn the_ten_largest_rows_are_shown_and_none_of_zeros() {
        let rows: Vec<u64> = vec![0, 5, 1, 9, 2, 0, 8, 3, 7, 4, 6, 10, 11];
        let text = |has_all| shown(&rows, has_all, String::new(), |row| format!("{row}\n"), |&row| row);
        let hidden = "and 3 more that hold less, or nothing: --all shows them";
        let largest: Vec<String> = (2..12).rev().map(|row| row.to_string()).chain([hidden.into()]).collect();
        assert_eq!(text(false).trim().lines().collect::<Vec<_>>(), largest);
        assert_eq!(text(true).trim().lines().count(), rows.len());
        assert_eq!(shown(&[0u64], false, "HEAD".into(), u64::to_string, |&row| row), "");
    }
}
