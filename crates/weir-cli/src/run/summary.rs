//! The result of a run: the counters of all its processes, added up.

use crate::base::units::{bytes, nanoseconds};
use crate::figures::reclaim_table::ReclaimTotals;
use crate::figures::released::Released;
use crate::figures::run::{LimitReport, ProcessMemory, Summary, Totals};
use crate::figures::times::Times;
use crate::processes::stats_file::StatsFile;
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_core::telemetry::stats::Stats;

/// `1 process`, `2 processes`.
pub fn count(processes: u64) -> String {
    format!("{processes} process{}", if processes == 1 { "" } else { "es" })
}

/// The first few by name and number, and how many more there are, with `more` that are not in the list.
pub fn names<T>(all: &[T], more: u64, name: impl Fn(&T) -> String) -> String {
    const SHOWN: usize = 3;
    let mut text = all.iter().take(SHOWN).map(name).collect::<Vec<_>>().join(", ");
    let more = more + all.len().saturating_sub(SHOWN) as u64;
    if more > 0 {
        text += &format!(" and {more} more");
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
        let add = |pages: &mut dyn Iterator<Item = &Stats>, pick: fn(&Stats) -> &AtomicU64| {
            pages.map(|page| pick(page).load(Relaxed)).fold(0, u64::saturating_add)
        };
        let sum = |pick: fn(&Stats) -> &AtomicU64| add(&mut file.pages(), pick);
        let latencies = Times::sum(file.pages().map(|page| &page.pressure_latency));
        let longest = file.pages().map(|page| page.pressure_latency_max.load(Relaxed)).max();
        let given_back = Released::by(file.pages());
        let refault_bytes = sum(|s| &s.refault_bytes);
        let [alloc_hit_rate, free_hit_rate] = hit_rates(file.pages());
        Self {
            processes: processes(file),
            processes_without_counters: file.beyond(),
            given_back_bytes: given_back,
            pressure_events: sum(|s| &s.pressure_events),
            // The end of its bucket may be beyond the longest of all.
            pressure_latency_p50_ns: latencies.below(0.5).map(|p50| p50.min(longest.unwrap_or(p50))),
            pressure_latency_max_ns: longest.filter(|_| latencies.count() > 0),
            reports: sum(|s| &s.reports),
            report_failures: sum(|s| &s.report_failures),
            refault_bytes,
            refault_rate: (given_back.total() > 0).then(|| refault_bytes as f64 / given_back.total() as f64),
            huge_pages_given_whole: sum(|s| &s.huge_kept),
            huge_pages_split: sum(|s| &s.huge_split),
            reclaim: ReclaimTotals::of(sum),
            free_hit_rate,
            alloc_hit_rate,
        }
    }
}

/// The parts of the allocations and of the frees that the fast path served.
fn hit_rates<'a>(pages: impl Iterator<Item = &'a Stats>) -> [Option<f64>; 2] {
    let (mut allocs, mut alloc_misses, mut frees, mut free_misses) = (0u64, 0u64, 0u64, 0u64);
    for page in pages {
        let [fast, misses, out, missed, large] =
            [&page.fast_frees, &page.free_misses, &page.objects_out, &page.alloc_misses, &page.large_allocs]
                .map(|count| count.load(Relaxed));
        let parents = page.parents_objects.load(Relaxed);
        // The fast path does not count as it goes. A process that was killed, or ended by `_exit`, before its first
        // count has only its misses to show.
        if fast == 0 && out <= parents {
            continue;
        }
        let freed = fast.saturating_add(misses);
        frees = frees.saturating_add(freed);
        free_misses = free_misses.saturating_add(misses);
        // A forked child frees objects of its parent's as well.
        allocs = allocs.saturating_add(freed.saturating_add(out).saturating_sub(parents));
        alloc_misses = alloc_misses.saturating_add(missed).saturating_add(large);
    }
    [rate(allocs, alloc_misses), rate(frees, free_misses)]
}

fn rate(all: u64, misses: u64) -> Option<f64> {
    (all > 0).then(|| 1.0 - (misses.min(all) as f64 / all as f64))
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
        let exceeded_by = match limit.exceeded_by_bytes {
            None => return format!("{kept} a process; it is not known whether it was exceeded between samples"),
            Some(0) => return format!("{kept} a process, never exceeded"),
            Some(most) => most,
        };
        let by = limit.by.as_ref().map_or(String::new(), |who| format!(" by {} {}", who.name, who.pid));
        let most = bytes(exceeded_by);
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
            0 => self.none_counted(),
            count => format!("{count} used Weir; `weir run --verbose` prints all figures"),
        };
        format!("weir: {}\n", self.verdict)
            + &line("resident", &self.resident())
            + &self.out_of_the_ordinary()
            + &line("processes", &used)
    }

    /// What is known of who used Weir, where no process was counted.
    fn none_counted(&self) -> String {
        match &self.no_counters {
            Some(why) => format!("it is not known which used Weir: {why}"),
            None if self.uncounted.is_empty() => "none that used Weir".into(),
            None => "none that was counted".into(),
        }
    }

    fn out_of_the_ordinary(&self) -> String {
        let limit = self.limit.as_ref().map(|limit| line("limit", &self.limit(limit)));
        let left = (!self.left_running.is_empty()).then(|| line("left running", &names(&self.left_running, 0, named)));
        let refused = match self.totals.reclaim.hard_limit_failures {
            0 => None,
            1 => Some(line("hard limit", "1 allocation was refused")),
            number => Some(line("hard limit", &format!("{number} allocations were refused"))),
        };
        [limit, refused, left].into_iter().flatten().collect()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.totals;
        let line = |f: &mut fmt::Formatter<'_>, name: &str, value: String| f.write_str(&line(name, &value));
        writeln!(f, "weir: {}", self.verdict)?;
        line(f, "resident", self.resident())?;
        if self.peak.processes > 1 {
            line(f, "largest", names(&self.peak.largest, 0, named) + " at the peak")?;
        }
        f.write_str(&self.out_of_the_ordinary())?;
        if t.processes == 0 {
            return line(f, "processes", self.none_counted());
        }
        match self.last_heap {
            Some(heap) if heap.live_bytes > 0 => line(f, "heap", format!("{heap} at the last sample"))?,
            None if self.last_processes > 0 => line(f, "heap", "unknown: it was not measured".into())?,
            Some(_) | None => {}
        }
        let causes = t.given_back_bytes.by_cause().replace("asked", "asked for");
        line(f, "given back", format!("{} ({causes})", bytes(t.given_back_bytes.total())))?;
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
        let left_out = match t.processes_without_counters {
            0 => String::new(),
            number => format!(", of which {number} were not counted"),
        };
        line(f, "processes", format!("{} used Weir{left_out}", t.processes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_that_the_hard_limit_refused_are_told() {
        let mut summary = Summary::default();
        assert!(!summary.brief().contains("hard limit"));
        summary.totals.reclaim.hard_limit_failures = 1;
        assert!(summary.brief().contains("weir: hard limit       1 allocation was refused\n"), "{}", summary.brief());
        summary.totals.reclaim.hard_limit_failures = 4;
        let [brief, all] = [summary.brief(), summary.to_string()];
        assert!([brief, all].iter().all(|it| it.contains("4 allocations were refused")));
    }

    #[test]
    fn rates() {
        assert_eq!([rate(0, 0), rate(4, 1), rate(1, 9)], [None, Some(0.75), Some(0.0)]);
        let page = |[fast, misses, out, missed, large]: [u64; 5]| {
            let page = Stats::new();
            page.fast_frees.store(fast, Relaxed);
            page.free_misses.store(misses, Relaxed);
            page.objects_out.store(out, Relaxed);
            page.alloc_misses.store(missed, Relaxed);
            page.large_allocs.store(large, Relaxed);
            page
        };
        // A large block that no bucket had is a miss of an allocation, as it is one of a free. The second was not counted.
        let pages = [page([70, 20, 10, 5, 20]), page([0, 9, 0, 9, 9])];
        assert_eq!(hit_rates(pages.iter()), [Some(0.75), Some(1.0 - 20.0 / 90.0)]);
        assert_eq!(hit_rates(pages[1..].iter()), [None, None]);
        // A forked child that was killed before its first count has its parent's objects.
        let child = page([70, 20, 1_000_000, 5, 20]);
        child.reset_totals();
        child.free_misses.store(9, Relaxed);
        assert_eq!(hit_rates([child].iter()), [None, None]);
        // One that frees all of them, and allocates ten, each by a miss.
        let child = page([70, 20, 1_000_000, 5, 20]);
        child.reset_totals();
        child.fast_frees.store(1_000_000, Relaxed);
        child.objects_out.store(10, Relaxed);
        child.alloc_misses.store(10, Relaxed);
        assert_eq!(hit_rates([child].iter()), [Some(0.0), Some(1.0)]);
    }
}
