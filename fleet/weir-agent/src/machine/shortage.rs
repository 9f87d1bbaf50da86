//! Whether the machine is short of memory: what is available, and how much tasks wait for it.

use super::groups::stall;
use std::fs;

/// The machine's memory, bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// All of it.
    pub total: u64,
    /// What programs can have without others having to give any.
    pub available: u64,
    /// Share of the last ten seconds in which some task waited for memory.
    pub stall: f64,
}

/// As the kernel says it is now; none where it does not.
pub fn now() -> Option<State> {
    of(&fs::read_to_string("/proc/meminfo").ok()?, &fs::read_to_string("/proc/pressure/memory").unwrap_or_default())
}

fn of(meminfo: &str, pressure: &str) -> Option<State> {
    let kib = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (total, available) = (kib("MemTotal:")? << 10, kib("MemAvailable:")? << 10);
    Some(State { total, available, stall: stall(pressure).unwrap_or(0.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let meminfo = "MemTotal:       4 kB\nMemFree:        1 kB\nMemAvailable:   3 kB\n";
        assert_eq!(of(meminfo, "some avg10=50.00 avg60=0\n"), Some(State { total: 4096, available: 3072, stall: 0.5 }));
        assert_eq!(of(meminfo, "").map(|state| state.stall), Some(0.0));
        assert_eq!(of("", ""), None);
    }
}
