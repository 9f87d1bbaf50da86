//! The result of a run: the counters of all its processes, added up.

use super::heap_bytes::HeapBytes;
use super::sampler::{ExcludedProcess, LimitReport, ResidentSum};
use crate::base::units::{bytes, nanoseconds};
use crate::processes::reclaim_table::ReclaimTotals;
use crate::processes::stats_file::StatsFile;
use crate::processes::tree::ProcessMemory;
use serde::Serialize;
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_core::telemetry::stats::{LATENCY_BUCKETS, Stats};

/// Bytes given back to the system, by what made Weir do it.
#[derive(Debug, Default, Serialize)]
pub struct GivenBack {
    pub idle: u64,
    pub pressure: u64,
    pub limit: u64,
    pub asked: u64,
}

impl GivenBack {
    pub fn total(&self) -> u64 {
        self.idle + self.pressure + self.limit + self.asked
    }
}

/// Counters of all processes together.
#[derive(Debug, Default, Serialize)]
pub struct Totals {
    /// Processes that used Weir.
    pub processes: u64,
    pub given_back_bytes: GivenBack,
    pub pressure_events: u64,
    /// Half of the pressure events had memory back within this time (upper end of a power of two), ns.
    pub pressure_latency_p50_ns: Option<u64>,
    pub pressure_latency_max_ns: Option<u64>,
    pub reports: u64,
    pub report_failures: u64,
    /// Bytes touched again within 10 s (`refault_ms`) of being given back.
    pub refault_bytes: u64,
    /// Part of what was given back that these are.
    pub refault_rate: Option<f64>,
    pub huge_pages_given_whole: u64,
    pub huge_pages_split: u64,
    /// Who reclaimed, and who waited for it.
    pub reclaim: ReclaimTotals,
    /// Part of the frees of small objects that the fast path served; none if no process lived to count them.
    pub free_hit_rate: Option<f64>,
    /// The same of allocations.
    pub alloc_hit_rate: Option<f64>,
}

/// `1 process`, `2 processes`.
pub fn count(processes: u64) -> String {
    format!("{processes} process{}", if processes == 1 { "" } else { "es" })
}

/// The first few by name and number, and how many more there are.
pub fn names<T>(all: &[T], name: impl Fn(&T) -> String) -> String {
    const SHOWN: usize = 3;
    let mut text = all.iter().take(SHOWN).map(name).collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN {
        text += &format!(" and {} more", all.len() - SHOWN);
    }
    text
}

/// Processes that used Weir. One that executed another program has a page for each.
fn processes(file: &StatsFile) -> u64 {
    let pids: HashSet<u32> = file.pages().map(|page| page.pid.load(Relaxed)).collect();
    pids.len() as u64 + file.beyond()
}

impl Totals {
    /// Adds up all pages of the file.
    pub fn of(file: &StatsFile) -> Self {
        let sum = |pick: &dyn Fn(&Stats) -> &AtomicU64| {
            file.pages().map(|page| pick(page).load(Relaxed)).fold(0, u64::saturating_add)
        };
        let mut histogram = [0u64; LATENCY_BUCKETS];
        for page in file.pages() {
            for (total, bucket) in histogram.iter_mut().zip(&page.pressure_latency) {
                *total += bucket.load(Relaxed);
            }
        }
        let longest = file.pages().map(|p| p.pressure_latency_max.load(Relaxed)).max();
        let heard = histogram.iter().any(|&n| n > 0);
        // The fast path does not count as it goes. A process that was killed, or ended by `_exit`, before its first
        // count has only its misses to show.
        let is_counted = |page: &&Stats| page.fast_frees.load(Relaxed) + page.objects_out.load(Relaxed) > 0;
        let counted = |pick: &dyn Fn(&Stats) -> &AtomicU64| {
            file.pages().filter(is_counted).map(|page| pick(page).load(Relaxed)).fold(0, u64::saturating_add)
        };
        let frees = counted(&|s| &s.fast_frees) + counted(&|s| &s.free_misses);
        let allocs = frees.saturating_add(counted(&|s| &s.objects_out));
        Self {
            processes: processes(file),
            given_back_bytes: GivenBack {
                idle: sum(&|s| &s.given_back[0]),
                pressure: sum(&|s| &s.given_back[1]),
                limit: sum(&|s| &s.given_back[2]),
                asked: sum(&|s| &s.given_back[3]),
            },
            pressure_events: sum(&|s| &s.pressure_events),
            // The end of its bucket may be beyond the longest of all.
            pressure_latency_p50_ns: median(&histogram).map(|p50| p50.min(longest.unwrap_or(p50))),
            pressure_latency_max_ns: longest.filter(|_| heard),
            reports: sum(&|s| &s.reports),
            report_failures: sum(&|s| &s.report_failures),
            refault_bytes: sum(&|s| &s.refault_bytes),
            refault_rate: share(sum(&|s| &s.refault_bytes), file),
            huge_pages_given_whole: sum(&|s| &s.huge_kept),
            huge_pages_split: sum(&|s| &s.huge_split),
            reclaim: ReclaimTotals::of(file),
            free_hit_rate: rate(frees, counted(&|s| &s.free_misses)),
            alloc_hit_rate: rate(allocs, counted(&|s| &s.alloc_misses)),
        }
    }
}

/// Upper end of the bucket that the median is in.
fn median(histogram: &[u64; LATENCY_BUCKETS]) -> Option<u64> {
    let total: u64 = histogram.iter().sum();
    let mut below = 0;
    let at = histogram.iter().position(|&n| {
        below += n;
        total > 0 && below * 2 >= total
    })?;
    Some(1 << (at + 1))
}

/// The part of what all processes gave back that `bytes` are.
fn share(bytes: u64, file: &StatsFile) -> Option<f64> {
    let given_back: u64 = file.pages().flat_map(|page| &page.given_back).map(|n| n.load(Relaxed)).sum();
    (given_back > 0).then(|| bytes as f64 / given_back as f64)
}

fn rate(all: u64, misses: u64) -> Option<f64> {
    (all > 0).then(|| 1.0 - (misses.min(all) as f64 / all as f64))
}

/// A finished run. Resident bytes are sums over all processes of the program, pages that they share counted once.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// What happened, in words.
    pub verdict: String,
    pub program: String,
    /// The program's exit status, if it ended by itself.
    pub exit_status: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    pub elapsed_seconds: f64,
    /// Most that all processes held at one time; none of a small program that ended before a sample.
    pub peak_resident_bytes: Option<u64>,
    /// What no single process was above.
    pub peak_resident_bound_bytes: u64,
    /// The processes at the peak, as far as samples show.
    pub peak: ResidentSum,
    /// Resident bytes at the last sample before the end; none if the program ended before one.
    pub last_resident_bytes: Option<u64>,
    /// Processes at the last sample.
    pub last_processes: usize,
    /// Where the memory of the heaps was at the last sample.
    pub last_heap: Option<HeapBytes>,
    /// Processes that went on when the program had ended.
    pub left_running: Vec<ProcessMemory>,
    pub limit: Option<LimitReport>,
    /// Processes that ran without Weir when they were sampled.
    pub without_weir: Vec<ExcludedProcess>,
    /// Processes that run on Weir but could not open the statistics file: what they released is not in the figures.
    pub uncounted: Vec<ExcludedProcess>,
    #[serde(flatten)]
    pub totals: Totals,
}

impl Summary {
    fn resident(&self) -> String {
        let of =
            |processes: usize| if processes == 0 { String::new() } else { format!(" in {}", count(processes as u64)) };
        let last = self.last_resident_bytes.map_or("none".into(), bytes) + &of(self.last_processes);
        let bound = || format!("under {}", bytes(self.peak_resident_bound_bytes));
        let peak = self.peak_resident_bytes.map_or_else(bound, bytes) + &of(self.peak.processes);
        let by_rss = match self.peak.by_rss {
            0 => String::new(),
            n => format!(" ({n} by Rss, shared pages counted in each)"),
        };
        format!("peak {peak}{by_rss}, last sample {last}")
    }

    fn limit(&self, limit: &LimitReport) -> String {
        let kept = bytes(limit.bytes);
        if limit.exceeded_by_bytes == 0 {
            return format!("{kept} a process, never exceeded");
        }
        let by = limit.by.as_ref().map_or(String::new(), |who| format!(" by {} {}", who.name, who.pid));
        let most = bytes(limit.exceeded_by_bytes);
        format!("{kept} a process, exceeded{by} by up to {most}, {:.1} s in all", limit.exceeded_seconds)
    }
}

/// A line of the summary.
fn line(name: &str, value: &str) -> String {
    format!("weir: {name:<17}{value}\n")
}

fn named(process: &ProcessMemory) -> String {
    format!("{} {} {}", process.name, process.pid, bytes(process.bytes))
}

impl Summary {
    /// The verdict, the resident set and the processes; a limit, and processes that were left, where there are any.
    pub fn brief(&self) -> String {
        let used = match self.totals.processes {
            0 => "none that used Weir".into(),
            count => format!("{count} used Weir; `weir run --verbose` prints all figures"),
        };
        format!("weir: {}\n", self.verdict)
            + &line("resident", &self.resident())
            + &self.out_of_the_ordinary()
            + &line("processes", &used)
    }

    fn out_of_the_ordinary(&self) -> String {
        let limit = self.limit.as_ref().map(|limit| line("limit", &self.limit(limit)));
        let left = (!self.left_running.is_empty()).then(|| line("left running", &names(&self.left_running, named)));
        limit.unwrap_or_default() + &left.unwrap_or_default()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.totals;
        let line = |f: &mut fmt::Formatter<'_>, name: &str, value: String| f.write_str(&line(name, &value));
        writeln!(f, "weir: {}", self.verdict)?;
        line(f, "resident", self.resident())?;
        if self.peak.processes > 1 {
            line(f, "largest", names(&self.peak.largest, named) + " at the peak")?;
        }
        f.write_str(&self.out_of_the_ordinary())?;
        if t.processes == 0 {
            return line(f, "processes", "none that used Weir".into());
        }
        if let Some(heap) = self.last_heap.filter(|heap| heap.live_bytes > 0) {
            line(f, "heap", format!("{heap} at the last sample"))?;
        }
        let g = &t.given_back_bytes;
        let causes = [("idle", g.idle), ("pressure", g.pressure), ("limit", g.limit), ("asked for", g.asked)];
        let causes = causes.map(|(name, n)| format!("{name} {}", bytes(n))).join(", ");
        line(f, "given back", format!("{} ({causes})", bytes(g.total())))?;
        let times = match (t.pressure_latency_p50_ns, t.pressure_latency_max_ns) {
            (Some(p50), Some(max)) => {
                format!("; memory back within p50 {}, max {}", nanoseconds(p50), nanoseconds(max))
            }
            _ => String::new(),
        };
        line(f, "pressure events", format!("{}{times}", t.pressure_events))?;
        line(f, "reports", format!("{}, refused {}", t.reports, t.report_failures))?;
        let again = t.refault_rate.map_or("none".into(), |r| format!("{} ({:.1}%)", bytes(t.refault_bytes), r * 100.0));
        line(f, "touched again", format!("{again} of what was given back, soon after"))?;
        let huge = format!("given back whole {}, split {}", t.huge_pages_given_whole, t.huge_pages_split);
        line(f, "huge pages", huge)?;
        let percent = |r: Option<f64>| r.map_or("none counted".into(), |r| format!("{:.2}%", r * 100.0));
        let hits = format!("allocations {}, frees {}", percent(t.alloc_hit_rate), percent(t.free_hit_rate));
        line(f, "fast path", hits)?;
        line(f, "processes", format!("{} used Weir", t.processes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_end_of_its_bucket() {
        let mut histogram = [0; LATENCY_BUCKETS];
        assert_eq!(median(&histogram), None);
        histogram[10] = 1;
        histogram[20] = 2;
        assert_eq!(median(&histogram), Some(1 << 21));
        histogram[LATENCY_BUCKETS - 1] = 100;
        assert_eq!(median(&histogram), Some(1 << LATENCY_BUCKETS));
    }

    #[test]
    fn rates() {
        assert_eq!([rate(0, 0), rate(4, 1), rate(1, 9)], [None, Some(0.75), Some(0.0)]);
    }
}
