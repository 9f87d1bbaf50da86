//! All that the page of one process says.

use super::asked::Told;
use super::breakdown::Breakdown;
use crate::base::output::printable_line;
use crate::base::units::{bytes, nanoseconds};
use crate::inspect::idle_window::IdleWindow;
use crate::inspect::page::Inspected;
use crate::processes::clock::monotonic_ns;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_core::telemetry::histogram::BUCKETS;
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::tables::{CacheRow, EvictableRow, ZoneRow};

/// Rows of a table that are shown without `--all`.
const ROWS: usize = 10;
/// The words for the levels of pressure.
const LEVELS: [&str; 3] = ["none", "some", "severe"];

/// See the module.
#[derive(Serialize)]
pub struct Report {
    pid: i32,
    command: String,
    /// When these figures were read, ns of the monotonic clock, as `weir trace` has it.
    at_ns: u64,
    #[serde(flatten)]
    memory: Breakdown,
    /// Why it could not be told to measure now.
    not_asked: Option<String>,
    /// How long idle memory stays, as far as it is known.
    #[serde(flatten)]
    window: Option<IdleWindow>,
    pressure: &'static str,
    background_thread: bool,
    released_bytes: Released,
    /// Bytes that were touched again soon after they were released.
    touched_again_bytes: u64,
    times: Vec<Times>,
    #[serde(serialize_with = "zones")]
    zones: Vec<ZoneRow>,
    #[serde(serialize_with = "caches")]
    caches: Vec<CacheRow>,
    #[serde(serialize_with = "evictable_caches")]
    evictable_caches: Vec<EvictableRow>,
    /// Caches and zones for which the page has no room.
    left_out: u64,
}

/// Bytes released since the start, by cause.
#[derive(Serialize)]
struct Released {
    idle: u64,
    pressure: u64,
    limit: u64,
    asked: u64,
}

/// A histogram of times.
#[derive(Serialize)]
struct Times {
    of: &'static str,
    count: u64,
    median_ns: Option<u64>,
    p99_ns: Option<u64>,
    most_ns: Option<u64>,
    /// Counts of times in `[2^i, 2^(i+1))` ns.
    histogram: Vec<u64>,
}

impl Times {
    fn of(of: &'static str, counts: &[AtomicU64; BUCKETS]) -> Self {
        let mut histogram: Vec<u64> = counts.iter().map(|count| count.load(Relaxed)).collect();
        let count = histogram.iter().copied().fold(0, u64::saturating_add);
        // The upper end of the bucket in which that share of the times ends.
        let below = |share: f64| {
            let rank = (count as f64 * share).ceil() as u64;
            let mut sum = 0;
            let bucket = histogram.iter().position(|part| {
                sum = part.saturating_add(sum);
                sum >= rank.max(1)
            })?;
            Some(1 << (bucket + 1))
        };
        let [median_ns, p99_ns, most_ns] = [0.5, 0.99, 1.0].map(below);
        histogram.truncate(histogram.iter().rposition(|&part| part > 0).map_or(0, |last| last + 1));
        Self { of, count, median_ns, p99_ns, most_ns, histogram }
    }
}

impl Report {
    /// Of a process and what it tells.
    pub fn of(inspected: &Inspected, told: Told) -> Self {
        let Told { page, idle_ms, silent } = told;
        let page = &page;
        let stat = inspected.process.stat().ok();
        let resident = stat.as_ref().map_or(0, |stat| stat.rss * procfs::page_size());
        let [idle, pressure, limit, asked] = page.given_back.each_ref().map(|bytes| bytes.load(Relaxed));
        let stats: &Stats = page;
        let (zones, zones_left) = stats.zones.read().map_or((Vec::new(), 0), |(rows, more)| (rows.collect(), more));
        let (mut caches, caches_left) =
            stats.caches.read().map_or((Vec::new(), 0), |(rows, more)| (rows.collect::<Vec<CacheRow>>(), more));
        caches.sort_by_key(|cache| std::cmp::Reverse(cache.slab_bytes));
        let (evictable_caches, evictable_left) =
            stats.evictable_caches.read().map_or((Vec::new(), 0), |(rows, more)| (rows.collect(), more));
        let at_ns = monotonic_ns();
        Self {
            pid: inspected.process.pid(),
            command: stat.map_or_else(String::new, |stat| stat.comm),
            at_ns,
            memory: Breakdown::of(page, resident, at_ns),
            not_asked: silent,
            window: idle_ms.map(|idle_ms| IdleWindow::of(idle_ms, page)),
            pressure: LEVELS.get(page.pressure_level.load(Relaxed) as usize).copied().unwrap_or("unknown"),
            background_thread: page.background.load(Relaxed) != 0,
            released_bytes: Released { idle, pressure, limit, asked },
            touched_again_bytes: page.refault_bytes.load(Relaxed),
            times: vec![
                Times::of("pressure event to memory released", &page.pressure_latency),
                Times::of("release of a batch", &page.release_times.counts),
                Times::of("allocation that reclaimed by itself", &page.direct_stalls.counts),
            ],
            zones,
            caches,
            evictable_caches,
            left_out: zones_left.saturating_add(caches_left).saturating_add(evictable_left),
        }
    }
}

/// A row as a JSON object: its name, then its figures.
fn object(name: &str, fields: &[(&'static str, u64)]) -> Value {
    let mut map = Map::new();
    map.insert("name".into(), name.into());
    map.extend(fields.iter().map(|&(field, value)| (field.to_owned(), value.into())));
    Value::Object(map)
}

fn zones<S: serde::Serializer>(rows: &[ZoneRow], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(rows.iter().map(|row| object(row.name(), &row.fields())))
}

fn caches<S: serde::Serializer>(rows: &[CacheRow], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(rows.iter().map(|row| object(row.name(), &row.fields())))
}

fn evictable_caches<S: serde::Serializer>(rows: &[EvictableRow], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(rows.iter().map(|row| object(row.name(), &row.fields())))
}

impl Report {
    /// For people; with all rows of its tables, or with the largest.
    pub fn text(&self, has_all: bool) -> String {
        let mut text = String::new();
        // To a string nothing fails.
        let _ = self.write_head(&mut text).and_then(|()| self.write_tables(&mut text, has_all));
        text
    }

    fn write_head(&self, f: &mut String) -> fmt::Result {
        let measured = match self.memory.measured_ns_ago {
            Some(ago) => format!("measured {} ago", nanoseconds(ago)),
            None => "not measured yet: the heap is small".to_owned(),
        };
        writeln!(f, "{} ({}), {measured}", printable_line(&self.command), self.pid)?;
        if let Some(why) = &self.not_asked {
            writeln!(f, "it could not be told to measure now: {}", printable_line(why))?;
        }
        write!(f, "{}", self.memory)?;
        if let Some(window) = &self.window {
            writeln!(f, "idle memory is kept for {window}")?;
        }
        let Released { idle, pressure, limit, asked } = self.released_bytes;
        let [i, p, l, a, again] = [idle, pressure, limit, asked, self.touched_again_bytes].map(bytes);
        writeln!(
            f,
            "pressure {}; released: idle {i}, pressure {p}, limit {l}, asked {a}; touched again {again}",
            self.pressure
        )?;
        self.times.iter().filter(|times| times.count > 0).try_for_each(|times| write_times(f, times))
    }

    fn write_tables(&self, f: &mut String, has_all: bool) -> fmt::Result {
        let zones = Shown::of(&self.zones, has_all, |zone| zone.used.max(zone.idle));
        let caches = Shown::of(&self.caches, has_all, |cache| cache.slab_bytes);
        let evictable = Shown::of(&self.evictable_caches, has_all, |cache| cache.bytes);
        if !zones.is_empty() {
            writeln!(
                f,
                "\n{:<24} {:>10} {:>10} {:>10} {:>10} {:>10}",
                "ZONE", "SPACE", "USED", "IDLE", "LIMIT", "FREE"
            )?;
            zones.write(f, write_zone)?;
        }
        if !caches.is_empty() {
            let head = ["SLABS", "SIZE", "USED", "FREE:CPU", "DEPOT", "SLAB", "REQUESTS", "FAIL", "RELEASED"];
            let [slabs, size, used, cpu, depot, slab, requests, fail, back] = head;
            writeln!(
                f,
                "\n{:<24} {slabs:>10} {size:>7} {used:>9} {cpu:>9} {depot:>9} {slab:>9} {requests:>13} {fail:>6} {back:>10}",
                "CACHE"
            )?;
            caches.write(f, write_cache)?;
        }
        if !evictable.is_empty() {
            let head = ["HELD", "MAY HOLD", "AT MOST", "ENTRIES", "HITS", "EVICTED", "PRESSURE"];
            let [held, target, most, entries, hits, evicted, pressure] = head;
            writeln!(
                f,
                "\n{:<24} {held:>10} {target:>10} {most:>10} {entries:>9} {hits:>8} {evicted:>9} {pressure:>9}",
                "EVICTABLE CACHE"
            )?;
            evictable.write(f, write_evictable)?;
        }
        if self.left_out > 0 {
            writeln!(f, "and {} more, for which the page of statistics has no room", self.left_out)?;
        }
        Ok(())
    }
}

/// Rows of a table that are shown, the largest first, and how many are not.
struct Shown<'a, Row> {
    rows: Vec<&'a Row>,
    hidden: usize,
}

impl<'a, Row> Shown<'a, Row> {
    /// All in their order, or the largest of those that hold anything.
    fn of(all: &'a [Row], has_all: bool, held: impl Fn(&Row) -> u64) -> Self {
        let mut rows: Vec<&Row> = all.iter().collect();
        if !has_all {
            rows.retain(|row| held(row) > 0);
            rows.sort_by_key(|row| std::cmp::Reverse(held(row)));
            rows.truncate(ROWS);
        }
        Self { hidden: all.len() - rows.len(), rows }
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn write(&self, f: &mut String, row: fn(&mut String, &Row) -> fmt::Result) -> fmt::Result {
        self.rows.iter().try_for_each(|it| row(f, it))?;
        match self.hidden {
            0 => Ok(()),
            hidden => writeln!(f, "and {hidden} more that hold less, or nothing: --all shows them"),
        }
    }
}

fn write_times(f: &mut String, times: &Times) -> fmt::Result {
    let below = |ns: Option<u64>| ns.map_or("-".into(), nanoseconds);
    let [half, most, all] = [times.median_ns, times.p99_ns, times.most_ns].map(below);
    writeln!(f, "{}: {} times, half below {half}, 99 % below {most}, all below {all}", times.of, times.count)
}

fn write_zone(f: &mut String, zone: &ZoneRow) -> fmt::Result {
    let [space, used, idle] = [zone.bytes, zone.used, zone.idle].map(bytes);
    let known = |figure: u64| if zone.capacity == 0 { "-".to_owned() } else { bytes(figure) };
    let (limit, free) = (known(zone.capacity), known(zone.free));
    writeln!(f, "{:<24} {space:>10} {used:>10} {idle:>10} {limit:>10} {free:>10}", printable_line(zone.name()))
}

fn write_cache(f: &mut String, cache: &CacheRow) -> fmt::Result {
    let CacheRow { size, used, free_cpu, free_depot, free_slab, requests, failures, .. } = cache;
    let (slabs, back) = (bytes(cache.slab_bytes), bytes(cache.trimmed_bytes.saturating_add(cache.drained_bytes)));
    writeln!(
        f,
        "{:<24} {slabs:>10} {size:>7} {used:>9} {free_cpu:>9} {free_depot:>9} {free_slab:>9} {requests:>13} {failures:>6} {back:>10}",
        printable_line(cache.name())
    )
}

fn write_evictable(f: &mut String, cache: &EvictableRow) -> fmt::Result {
    let [held, target, most] = [cache.bytes, cache.target_bytes, cache.max_bytes].map(bytes);
    let lookups = cache.hits.saturating_add(cache.misses);
    let hits = if lookups == 0 { "-".into() } else { format!("{:.1} %", cache.hits as f64 * 100.0 / lookups as f64) };
    let EvictableRow { entries, evicted_for_room: evicted, evicted_for_pressure: pressure, .. } = cache;
    writeln!(
        f,
        "{:<24} {held:>10} {target:>10} {most:>10} {entries:>9} {hits:>8} {evicted:>9} {pressure:>9}",
        printable_line(cache.name())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::page::Page;
    use weir_core::telemetry::stats::PAGE_BYTES;

    #[test]
    fn any_page_is_shown_without_harm() {
        let inspected = Inspected::new(std::process::id() as i32).unwrap();
        for byte in [0, 1, 0x1b, 0x7f, 0x80, 0xff] {
            let told = Told { page: Page::of(&[byte; PAGE_BYTES]).unwrap(), idle_ms: Some(u64::MAX), silent: None };
            let report = Report::of(&inspected, told);
            assert!(serde_json::to_string(&report).is_ok());
            assert!(!report.text(true).chars().any(|c| c.is_control() && c != '\n'), "{byte}");
        }
    }

    /// The process chose it: it cannot add lines of its own.
    #[test]
    fn a_name_stays_on_its_line() {
        let name = weir_core::telemetry::tables::name_of("a\nb");
        let mut text = String::new();
        write_zone(&mut text, &ZoneRow { name, ..ZoneRow::default() }).unwrap();
        write_cache(&mut text, &CacheRow { name, ..CacheRow::default() }).unwrap();
        write_evictable(&mut text, &EvictableRow { name, ..EvictableRow::default() }).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn the_ten_largest_rows_are_shown_and_none_of_zeros() {
        let rows: Vec<u64> = vec![0, 5, 1, 9, 2, 0, 8, 3, 7, 4, 6, 10, 11];
        let shown = Shown::of(&rows, false, |&row| row);
        assert_eq!(shown.rows, [&11, &10, &9, &8, &7, &6, &5, &4, &3, &2]);
        let mut text = String::new();
        shown.write(&mut text, |f, row| writeln!(f, "{row}")).unwrap();
        assert!(
            text.lines().count() == 11 && text.ends_with("and 3 more that hold less, or nothing: --all shows them\n")
        );
        let all = Shown::of(&rows, true, |&row| row);
        assert!(all.hidden == 0 && all.rows.len() == rows.len());
    }

    #[test]
    fn times_are_told_by_the_upper_end_of_their_bucket() {
        let counts = [const { AtomicU64::new(0) }; BUCKETS];
        assert_eq!(Times::of("x", &counts).median_ns, None);
        counts[3].store(98, Relaxed);
        counts[10].store(2, Relaxed);
        let times = Times::of("x", &counts);
        assert_eq!((times.count, times.median_ns, times.p99_ns), (100, Some(16), Some(2048)));
        assert_eq!(times.histogram.len(), 11);
    }
}
