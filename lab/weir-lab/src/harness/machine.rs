//! One line on the machine, for the head of every table.

use procfs::{Current, Meminfo};
use std::fs::read_to_string;

/// CPUs, memory, kernel, huge pages, cgroups.
pub fn describe() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.split('-').next().unwrap_or_default().trim().to_string();
    let memory = Meminfo::current();
    let memory = memory.map_or("?".into(), |memory| format!("{:.0}", memory.mem_total as f64 / f64::from(1 << 30)));
    let thp = crate::harness::huge_pages::found().unwrap_or_else(|_| "none".into());
    let cgroups = crate::harness::cgroup::version().map_or("none".into(), |version| format!("v{version}"));
    format!("{cpus} CPUs, {memory} GiB, Linux {kernel}, huge pages: {thp}, memory cgroups: {cgroups}")
}
