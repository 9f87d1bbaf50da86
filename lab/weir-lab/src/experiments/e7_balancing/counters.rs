//! What is counted in a run, under the document's names.

use crate::harness::proc_files::vmstat;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir_core::telemetry::stats::Stats;

/// A line of the table.
pub type Line = (&'static str, f64);

/// By side: the balancer's, direct reclaim's.
type Sides = [u64; 2];

/// Counters at one time: Weir's of the server, and the machine's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    direct_reclaims: u64,
    scanned: Sides,
    reclaimed: Sides,
    async_writes: Sides,
    sync_writes: Sides,
    wake_requests: u64,
    wakeups: u64,
    stall_ns: u64,
    active_ns: u64,
    cpu_ns: u64,
    /// In the order of [`FAULTS`].
    faults: [u64; 6],
}

/// The document's names, and the kernel's.
const FAULTS: [(&str, &str); 6] = [
    ("Major Faults", "pgmajfault"),
    ("Minor Faults", "pgfault"),
    ("Page ins", "pgpgin"),
    ("Page outs", "pgpgout"),
    ("Swap ins", "pswpin"),
    ("Swap outs", "pswpout"),
];

impl Counters {
    /// Now.
    pub fn now(stats: &Stats) -> Result<Counters, String> {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let sides = |counters: &[AtomicU64; 2]| [read(&counters[0]), read(&counters[1])];
        let mut faults = [0; 6];
        for (count, (_, name)) in faults.iter_mut().zip(FAULTS) {
            *count = vmstat(name)?;
        }
        Ok(Counters {
            direct_reclaims: read(&stats.direct_reclaims),
            scanned: sides(&stats.scanned_pages),
            reclaimed: sides(&stats.reclaimed_pages),
            async_writes: sides(&stats.async_writes),
            sync_writes: sides(&stats.sync_writes),
            wake_requests: read(&stats.wake_requests),
            wakeups: read(&stats.wakeups),
            stall_ns: read(&stats.direct_stall_ns),
            active_ns: read(&stats.balancer_active_ns),
            cpu_ns: read(&stats.balancer_cpu_ns),
            faults,
        })
    }

    /// The document's lines, from `before` until these: of a test that took `elapsed` seconds, and its own programs `own`
    /// seconds of CPU.
    pub fn lines(&self, before: &Counters, elapsed: f64, own: f64) -> Vec<Line> {
        let count = |of: fn(&Counters) -> u64| of(self).saturating_sub(of(before)) as f64;
        let side = |of: fn(&Counters) -> Sides, at: usize| of(self)[at].saturating_sub(of(before)[at]) as f64;
        let (stall, active) = (count(|c| c.stall_ns) / 1e9, count(|c| c.active_ns) / 1e9);
        let all = |of: fn(&Counters) -> Sides| side(of, 0) + side(of, 1);
        let (scanned, reclaimed) = (all(|c| c.scanned), all(|c| c.reclaimed));
        let written = all(|c| c.async_writes) + all(|c| c.sync_writes);
        let share = |part: f64, of: f64| if of > 0.0 { 100.0 * part / of } else { 0.0 };
        let mut lines = vec![
            ("User/Sys Time Running Test (seconds)", own),
            ("Total Elapsed Time (seconds)", elapsed),
            ("Direct reclaims", count(|c| c.direct_reclaims)),
            ("Direct reclaim pages scanned", side(|c| c.scanned, 1)),
            ("Direct reclaim pages reclaimed", side(|c| c.reclaimed, 1)),
            ("Direct reclaim write file async I/O", side(|c| c.async_writes, 1)),
            ("Direct reclaim write anon async I/O", 0.0),
            ("Direct reclaim write file sync I/O", side(|c| c.sync_writes, 1)),
            ("Direct reclaim write anon sync I/O", 0.0),
            ("Wake kswapd requests", count(|c| c.wake_requests)),
            ("Kswapd wakeups", count(|c| c.wakeups)),
            ("Kswapd pages scanned", side(|c| c.scanned, 0)),
            ("Kswapd pages reclaimed", side(|c| c.reclaimed, 0)),
            ("Kswapd reclaim write file async I/O", side(|c| c.async_writes, 0)),
            ("Kswapd reclaim write anon async I/O", 0.0),
            ("Kswapd reclaim write file sync I/O", side(|c| c.sync_writes, 0)),
            ("Kswapd reclaim write anon sync I/O", 0.0),
            ("Time stalled direct reclaim (seconds)", stall),
            ("Time kswapd awake (seconds)", active),
            ("Time kswapd on a CPU (seconds)", count(|c| c.cpu_ns) / 1e9),
            ("Total pages scanned", scanned),
            ("Total pages reclaimed", reclaimed),
            ("%age total pages scanned/reclaimed", share(reclaimed, scanned)),
            ("%age total pages scanned/written", share(written, scanned)),
            ("%age file pages scanned/written", share(written, scanned)),
            ("Percentage Time Spent Direct Reclaim", share(stall, stall + own)),
            ("Percentage Time kswapd Awake", share(active, elapsed)),
        ];
        let faults = FAULTS.iter().zip(self.faults.iter().zip(before.faults));
        lines.extend(faults.map(|((name, _), (now, then))| (*name, now.saturating_sub(then) as f64)));
        lines
    }
}

/// Seconds of CPU that the children took that have been waited for.
pub fn own_seconds() -> f64 {
    // SAFETY: rusage is plain data, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    [usage.ru_utime, usage.ru_stime].iter().map(|time| time.tv_sec as f64 + time.tv_usec as f64 / 1e6).sum()
}

#[cfg(test)]
mod tests {
    use super::super::document;
    use super::super::setting::Test;
    use super::*;

    #[test]
    fn every_line_of_the_document_is_measured() {
        let lines = Counters::default().lines(&Counters::default(), 1.0, 1.0);
        for name in document::names(Test::Streaming) {
            assert!(lines.iter().any(|(line, _)| *line == name), "{name}");
        }
    }

    #[test]
    fn percentages_are_as_the_document_has_them() {
        let before = Counters { scanned: [100, 0], ..Counters::default() };
        let after = Counters {
            scanned: [1100, 1000],
            reclaimed: [990, 500],
            sync_writes: [20, 0],
            stall_ns: 1_790_000_000,
            active_ns: 387_600_000_000,
            ..before
        };
        let lines = after.lines(&before, 916.18, 24.23);
        let at = |name| lines.iter().find(|(line, _)| *line == name).expect("a line").1;
        assert_eq!((at("Total pages scanned"), at("%age total pages scanned/reclaimed")), (2000.0, 74.5));
        assert_eq!(at("%age total pages scanned/written"), 1.0);
        assert!((at("Percentage Time Spent Direct Reclaim") - 6.88).abs() < 0.01);
        assert!((at("Percentage Time kswapd Awake") - 42.31).abs() < 0.01);
    }
}
