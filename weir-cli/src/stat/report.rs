//! All that the page of one process says.

use super::breakdown::Breakdown;
use crate::base::output::printable;
use crate::base::units::{bytes, nanoseconds};
use crate::inspect::page::{Inspected, Page};
use crate::processes::clock::monotonic_ns;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_core::telemetry::histogram::BUCKETS;
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::tables::{CacheRow, EvictableRow, ZoneRow};

/// The words for the levels of pressure.
const LEVELS: [&str; 3] = ["none", "some", "severe"];

/// See the module.
#[derive(Serialize)]
pub struct Report {
    pid: i32,
    command: String,
    #[serde(flatten)]
    memory: Breakdown,
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
    /// Of a process and the copy of its page.
    pub fn of(inspected: &Inspected, page: &Page) -> Self {
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
        Self {
            pid: inspected.process.pid(),
            command: stat.map_or_else(String::new, |stat| stat.comm),
            memory: Breakdown::of(page, resident, monotonic_ns()),
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = match self.memory.measured_ns_ago {
            Some(ago) => format!("measured {} ago", nanoseconds(ago)),
            None => "not measured yet: the heap is small".to_owned(),
        };
        writeln!(f, "{} ({}), {measured}", printable(&self.command), self.pid)?;
        write!(f, "{}", self.memory)?;
        let Released { idle, pressure, limit, asked } = self.released_bytes;
        let [i, p, l, a, again] = [idle, pressure, limit, asked, self.touched_again_bytes].map(bytes);
        writeln!(
            f,
            "pressure {}; released: idle {i}, pressure {p}, limit {l}, asked {a}; touched again {again}",
            self.pressure
        )?;
        self.times.iter().filter(|times| times.count > 0).try_for_each(|times| write_times(f, times))?;
        if !self.zones.is_empty() {
            writeln!(
                f,
                "\n{:<24} {:>10} {:>10} {:>10} {:>10} {:>10}",
                "ZONE", "SPACE", "USED", "IDLE", "LIMIT", "FREE"
            )?;
            self.zones.iter().try_for_each(|zone| write_zone(f, zone))?;
        }
        if !self.caches.is_empty() {
            let head = ["SLABS", "SIZE", "USED", "FREE:CPU", "DEPOT", "SLAB", "REQUESTS", "FAIL", "RELEASED"];
            let [slabs, size, used, cpu, depot, slab, requests, fail, back] = head;
            writeln!(
                f,
                "\n{:<24} {slabs:>10} {size:>7} {used:>9} {cpu:>9} {depot:>9} {slab:>9} {requests:>13} {fail:>6} {back:>10}",
                "CACHE"
            )?;
            self.caches.iter().try_for_each(|cache| write_cache(f, cache))?;
        }
        if !self.evictable_caches.is_empty() {
            let head = ["HELD", "MAY HOLD", "AT MOST", "ENTRIES", "HITS", "EVICTED", "PRESSURE"];
            let [held, target, most, entries, hits, evicted, pressure] = head;
            writeln!(
                f,
                "\n{:<24} {held:>10} {target:>10} {most:>10} {entries:>9} {hits:>8} {evicted:>9} {pressure:>9}",
                "EVICTABLE CACHE"
            )?;
            self.evictable_caches.iter().try_for_each(|cache| write_evictable(f, cache))?;
        }
        if self.left_out > 0 {
            writeln!(f, "and {} more, for which the page of statistics has no room", self.left_out)?;
        }
        Ok(())
    }
}

fn write_times(f: &mut fmt::Formatter<'_>, times: &Times) -> fmt::Result {
    let below = |ns: Option<u64>| ns.map_or("-".into(), nanoseconds);
    let [half, most, all] = [times.median_ns, times.p99_ns, times.most_ns].map(below);
    writeln!(f, "{}: {} times, half below {half}, 99 % below {most}, all below {all}", times.of, times.count)
}

fn write_zone(f: &mut fmt::Formatter<'_>, zone: &ZoneRow) -> fmt::Result {
    let [space, used, idle] = [zone.bytes, zone.used, zone.idle].map(bytes);
    let known = |figure: u64| if zone.capacity == 0 { "-".to_owned() } else { bytes(figure) };
    let (limit, free) = (known(zone.capacity), known(zone.free));
    writeln!(f, "{:<24} {space:>10} {used:>10} {idle:>10} {limit:>10} {free:>10}", printable(zone.name()))
}

fn write_cache(f: &mut fmt::Formatter<'_>, cache: &CacheRow) -> fmt::Result {
    let CacheRow { size, used, free_cpu, free_depot, free_slab, requests, failures, .. } = cache;
    let (slabs, back) = (bytes(cache.slab_bytes), bytes(cache.trimmed_bytes.saturating_add(cache.drained_bytes)));
    writeln!(
        f,
        "{:<24} {slabs:>10} {size:>7} {used:>9} {free_cpu:>9} {free_depot:>9} {free_slab:>9} {requests:>13} {failures:>6} {back:>10}",
        printable(cache.name())
    )
}

fn write_evictable(f: &mut fmt::Formatter<'_>, cache: &EvictableRow) -> fmt::Result {
    let [held, target, most] = [cache.bytes, cache.target_bytes, cache.max_bytes].map(bytes);
    let lookups = cache.hits.saturating_add(cache.misses);
    let hits = if lookups == 0 { "-".into() } else { format!("{:.1} %", cache.hits as f64 * 100.0 / lookups as f64) };
    let EvictableRow { entries, evicted_for_room: evicted, evicted_for_pressure: pressure, .. } = cache;
    writeln!(
        f,
        "{:<24} {held:>10} {target:>10} {most:>10} {entries:>9} {hits:>8} {evicted:>9} {pressure:>9}",
        printable(cache.name())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_page_is_shown_without_harm() {
        let inspected = Inspected::new(std::process::id() as i32).unwrap();
        for byte in [0, 1, 0x1b, 0x7f, 0x80, 0xff] {
            let report = Report::of(&inspected, &Page::filled(byte));
            assert!(serde_json::to_string(&report).is_ok());
            assert!(!report.to_string().chars().any(|c| c.is_control() && c != '\n'), "{byte}");
        }
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
