//! Processes for tests.

use super::sample::{OfWeir, Process};
use crate::stat::breakdown::Breakdown;

/// A process; one with Weir has half of its memory live, a quarter idle, an eighth each fragmented and not Weir's.
pub fn process(pid: i32, parent: i32, command: &str, resident_bytes: u64, has_weir: bool) -> Process {
    let memory = Breakdown {
        resident_bytes,
        live_bytes: resident_bytes / 2,
        idle_bytes: resident_bytes / 4,
        fragmented_bytes: resident_bytes / 8,
        metadata_bytes: 0,
        not_weirs_bytes: resident_bytes / 8,
        untouched_bytes: 0,
        measured_ns_ago: Some(1),
        is_stale: false,
    };
    let weir = has_weir.then_some(OfWeir { memory, released: [5 << 20, 1 << 20, 0, 2 << 20], pressure: 1 });
    Process { pid, started: 0, parent, command: command.to_owned(), resident_bytes, weir }
}
