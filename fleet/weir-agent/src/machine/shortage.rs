//! Whether the machine is short of memory: what is available, and how much tasks wait for it.

use super::groups::share;
use std::fs;
use weir_cli::Stall;

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
    of(&fs::read_to_string("/proc/meminfo").ok()?, Stall::of_machine())
}

fn of(meminfo: &str, stall: Option<Stall>) -> Option<State> {
    let kib = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (total, available) = (kib("MemTotal:")? << 10, kib("MemAvailable:")? << 10);
    Some(State { total, available, stall: stall.map_or(0.0, share) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let meminfo = "MemTotal:       4 kB\nMemFree:        1 kB\nMemAvailable:   3 kB\n";
        let stall = Stall { some: [50.0, 0.0, 0.0], ..Stall::default() };
        assert_eq!(of(meminfo, Some(stall)), Some(State { total: 4096, available: 3072, stall: 0.5 }));
        assert_eq!(of(meminfo, None).map(|state| state.stall), Some(0.0));
        assert_eq!(of("", None), None);
    }
}
