//! The table of reclaim: what the balancer and direct reclaim scanned and reclaimed, and what that cost. Rows and
//! words are those of the Linux kernel's reclaim statistics where the two mean the same. The balancer is kswapd there.

use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicU64;
use weir_core::reclaim::Side;
use weir_core::telemetry::stats::Stats;

const NS: f64 = 1e9;

/// One side's counters, added up over all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideTotals {
    pub pages_scanned: u64,
    pub pages_reclaimed: u64,
}

/// Reclaim of all processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimTotals {
    pub direct_reclaims: u64,
    pub direct: SideTotals,
    pub wake_requests: u64,
    pub wakeups: u64,
    pub balancer: SideTotals,
    pub direct_stall_ns: u64,
    /// From the balancers' wake-ups to their sleeps.
    pub balancer_active_ns: u64,
    /// The part of that on a CPU.
    pub balancer_cpu_ns: u64,
    /// Allocations that the hard limit made fail.
    pub hard_limit_failures: u64,
    /// Times that pressure was over.
    pub reliefs: u64,
}

impl ReclaimTotals {
    /// By what a counter is in all processes together.
    pub fn of(sum: impl Fn(fn(&Stats) -> &AtomicU64) -> u64) -> Self {
        Self {
            direct_reclaims: sum(|s| &s.direct_reclaims),
            direct: SideTotals {
                pages_scanned: sum(|s| &s.scanned_pages[Side::Direct as usize]),
                pages_reclaimed: sum(|s| &s.reclaimed_pages[Side::Direct as usize]),
            },
            wake_requests: sum(|s| &s.wake_requests),
            wakeups: sum(|s| &s.wakeups),
            balancer: SideTotals {
                pages_scanned: sum(|s| &s.scanned_pages[Side::Balancer as usize]),
                pages_reclaimed: sum(|s| &s.reclaimed_pages[Side::Balancer as usize]),
            },
            direct_stall_ns: sum(|s| &s.direct_stall_ns),
            balancer_active_ns: sum(|s| &s.balancer_active_ns),
            balancer_cpu_ns: sum(|s| &s.balancer_cpu_ns),
            hard_limit_failures: sum(|s| &s.hard_limit_failures),
            reliefs: sum(|s| &s.reliefs),
        }
    }

    /// The table of a run that took `elapsed` seconds.
    pub fn table(&self, elapsed: f64) -> String {
        let lines = self.rows(elapsed).into_iter().map(|(name, value)| format!("weir: {name:<40}{value:>14}\n"));
        String::from("weir: Reclaim Statistics\n") + &lines.collect::<String>()
    }

    /// The table's rows. Of several processes the times are sums, and so may be more than `elapsed`.
    pub fn rows(&self, elapsed: f64) -> Vec<(&'static str, String)> {
        let (direct, balancer) = (&self.direct, &self.balancer);
        let scanned = direct.pages_scanned.saturating_add(balancer.pages_scanned);
        let reclaimed = direct.pages_reclaimed.saturating_add(balancer.pages_reclaimed);
        let count = |count: u64| count.to_string();
        let seconds = |ns: u64| ns as f64 / NS;
        let time = |ns: u64| format!("{:.2}", seconds(ns));
        let share = |part: f64, whole: f64| format!("{:.2}%", if whole > 0.0 { part * 100.0 / whole } else { 0.0 });
        let of_time = |ns: u64| share(seconds(ns), elapsed);
        vec![
            ("Direct reclaims", count(self.direct_reclaims)),
            ("Direct reclaim pages scanned", count(direct.pages_scanned)),
            ("Direct reclaim pages reclaimed", count(direct.pages_reclaimed)),
            ("Wake balancer requests", count(self.wake_requests)),
            ("Balancer wakeups", count(self.wakeups)),
            ("Balancer pages scanned", count(balancer.pages_scanned)),
            ("Balancer pages reclaimed", count(balancer.pages_reclaimed)),
            ("Time stalled direct reclaim (seconds)", time(self.direct_stall_ns)),
            ("Time balancer active (seconds)", time(self.balancer_active_ns)),
            ("Time balancer on a CPU (seconds)", time(self.balancer_cpu_ns)),
            ("Total pages scanned", count(scanned)),
            ("Total pages reclaimed", count(reclaimed)),
            ("%age total pages scanned/reclaimed", share(reclaimed as f64, scanned as f64)),
            ("Percentage Time Spent Direct Reclaim", of_time(self.direct_stall_ns)),
            ("Percentage Time balancer Active", of_time(self.balancer_active_ns)),
            ("Percentage Time balancer on a CPU", of_time(self.balancer_cpu_ns)),
            ("Reliefs", count(self.reliefs)),
            ("Allocations failed at the hard limit", count(self.hard_limit_failures)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn the_table_has_the_documents_rows_and_percentages() {
        let stats = Stats::new();
        stats.scanned_pages[Side::Balancer as usize].store(15_706_394, Relaxed);
        stats.scanned_pages[Side::Direct as usize].store(1_801_142, Relaxed);
        stats.reclaimed_pages[Side::Balancer as usize].store(8_753_768, Relaxed);
        stats.direct_reclaims.store(2565, Relaxed);
        stats.direct_stall_ns.store(980_000_000, Relaxed);
        stats.balancer_active_ns.store(410_260_000_000, Relaxed);
        stats.balancer_cpu_ns.store(41_026_000_000, Relaxed);
        let totals = ReclaimTotals::of(|pick| pick(&stats).load(Relaxed));
        let table = totals.table(916.69);
        let has = |name: &str, value: &str| {
            let line = table.lines().find(|line| line.starts_with(&format!("weir: {name}"))).expect(name);
            assert!(line.ends_with(&format!(" {value}")), "{line}");
        };
        has("Direct reclaims", "2565");
        has("Direct reclaim pages scanned", "1801142");
        has("Balancer pages scanned", "15706394");
        has("Total pages scanned", "17507536");
        has("%age total pages scanned/reclaimed", "50.00%");
        has("Time stalled direct reclaim", "0.98");
        has("Percentage Time Spent Direct Reclaim", "0.11%");
        has("Percentage Time balancer Active", "44.75%");
        has("Percentage Time balancer on a CPU", "4.48%");
    }

    #[test]
    fn nothing_reclaimed_is_no_division_by_nothing() {
        let table = ReclaimTotals::default().table(0.0);
        assert!(!table.contains("NaN") && !table.contains("inf"), "{table}");
    }
}
