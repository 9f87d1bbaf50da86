//! A finished run of `weir run`: what it writes as JSON, and `weir report` reads back.

use super::memory::Heap;
use super::reclaim_table::ReclaimTotals;
use super::released::Released;
use serde::{Deserialize, Serialize};

/// A process with its memory, for messages and results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessMemory {
    pub name: String,
    pub pid: i32,
    pub bytes: u64,
}

/// Memory of all processes at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ResidentSum {
    pub bytes: u64,
    pub processes: usize,
    /// Processes among them of which all that is resident counts, shared or not.
    pub by_rss: usize,
    pub largest: Vec<ProcessMemory>,
    /// Heaps of the processes on Weir, by their counters. None (`null` in JSON): a part of them was never measured.
    pub heap: Option<Heap>,
}

/// How a limit was kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LimitReport {
    pub bytes: u64,
    /// Most bytes that a process had above it. None: not known, as none was seen above it, and no count of
    /// the kernel shows the peak.
    pub exceeded_by_bytes: Option<u64>,
    /// Time during which at least one process was above it, as far as samples show.
    pub exceeded_seconds: f64,
    /// The process with most, if samples show it with that, and its bytes above the limit.
    pub by: Option<ProcessMemory>,
}

/// A process that runs without Weir, or uncounted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExcludedProcess {
    pub name: String,
    pub pid: i32,
    pub why: String,
}

/// Counters of all processes together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Processes that used Weir.
    pub processes: u64,
    /// Those among them that found no page of counters left: what they did is in no other figure.
    #[serde(default)]
    pub processes_without_counters: u64,
    pub given_back_bytes: Released,
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
    /// Part of the frees that the fast path served; none if no process lived to count them.
    pub free_hit_rate: Option<f64>,
    /// Part of the allocations that the fast path served.
    pub alloc_hit_rate: Option<f64>,
}

/// A finished run. Resident bytes are sums over all processes of the program, pages that they share counted once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The outcome in words.
    pub verdict: String,
    pub program: String,
    /// The program's exit status, if it ended by itself.
    pub exit_status: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    pub elapsed_seconds: f64,
    /// Most that all processes held at one time; none for a small program that ended before a sample.
    pub peak_resident_bytes: Option<u64>,
    /// The bound that no single process was above.
    pub peak_resident_bound_bytes: u64,
    /// The processes at the peak, as far as samples show.
    #[serde(default)]
    pub peak: ResidentSum,
    /// Resident bytes at the last sample before the end. None (`null` in JSON) if the program ended before a sample, or if it
    /// peaked after the last one. Then that sample tells nothing of its end.
    pub last_resident_bytes: Option<u64>,
    /// Processes at the last sample; 0 where that has no resident bytes.
    #[serde(default)]
    pub last_processes: usize,
    /// Where the memory of the heaps was at the last sample. None as for [`ResidentSum::heap`], too.
    pub last_heap: Option<Heap>,
    /// Processes that went on when the program had ended.
    #[serde(default)]
    pub left_running: Vec<ProcessMemory>,
    pub limit: Option<LimitReport>,
    /// Processes that ran without Weir when they were sampled.
    #[serde(default)]
    pub without_weir: Vec<ExcludedProcess>,
    /// How many more there were, beyond those that are kept by name.
    #[serde(default)]
    pub more_without_weir: u64,
    /// Processes that run on Weir but could not open the statistics file: what they released is not in the figures.
    #[serde(default)]
    pub uncounted: Vec<ExcludedProcess>,
    /// How many more there were.
    #[serde(default)]
    pub more_uncounted: u64,
    /// Why there were no counters: then it is not known which processes used Weir.
    #[serde(default)]
    pub no_counters: Option<String>,
    /// Why the program was not measured while it ran.
    #[serde(default)]
    pub no_samples: Option<String>,
    #[serde(flatten)]
    pub totals: Totals,
}
