//! What the processes of a group hold, summed up.

use serde::Serialize;
use weir_cli::survey::{Cost, Process, parts, parts_within};

/// Bytes, and as a share of the resident sets 1 / LITTLE_SHARE, that may be missing in the parts.
const LITTLE: u64 = 1 << 20;
const LITTLE_SHARE: u64 = 16;

/// See the module; bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Processes with Weir.
    pub processes: u64,
    /// Their resident sets; what several share counts in each.
    pub resident: u64,
    /// Resident sets of those of which the parts are unknown: no part of the following.
    pub unknown: u64,
    /// In use by the programs.
    pub live: u64,
    /// Free, and can be released.
    pub idle: u64,
    /// Free, beside objects in use on the same pages.
    pub fragmented: u64,
    /// As fragmented, and charged to nobody.
    pub merged: u64,
    /// What evictable caches hold; a part of live.
    pub evictable: u64,
    /// What they could give below the cost bar.
    pub spare: u64,
    /// Released since their start.
    pub released: u64,
    /// Of that, touched again soon after.
    pub touched_again: u64,
}

impl Figures {
    /// With another process. `bar`: the price, in nanoseconds a MiB, up to which memory is spare.
    pub fn and(&self, process: &Process, bar: u64) -> Self {
        let memory = &process.memory;
        let part = |part: Option<u64>| part.unwrap_or(0);
        let idle = part(memory.idle_bytes);
        Self {
            processes: self.processes + 1,
            resident: self.resident.saturating_add(memory.resident_bytes),
            unknown: self.unknown.saturating_add(if memory.parts().is_some() { 0 } else { memory.resident_bytes }),
            live: self.live.saturating_add(part(memory.live_bytes)),
            idle: self.idle.saturating_add(idle),
            fragmented: self.fragmented.saturating_add(part(memory.fragmented_bytes)),
            merged: self.merged.saturating_add(part(memory.merged_bytes)),
            evictable: self.evictable.saturating_add(process.evictable_bytes),
            // What is idle is there also where no price was measured yet.
            spare: self.spare.saturating_add(below(&process.costs, bar).max(idle).min(memory.resident_bytes)),
            released: self.released.saturating_add(process.released_bytes),
            touched_again: self.touched_again.saturating_add(process.touched_again_bytes),
        }
    }

    /// Whether the parts are known, but for a little. A sum without what is unknown would look as if memory had been freed.
    pub fn has_parts(&self) -> bool {
        self.unknown <= LITTLE.max(self.resident / LITTLE_SHARE)
    }

    /// The share of what was released that was touched again soon after.
    pub fn refault_share(&self) -> f64 {
        self.touched_again as f64 / self.released.max(1) as f64
    }
}

/// The parts of a process's cost curve, cheapest first, as far as they are resident.
pub fn parts_of(process: &Process) -> impl Iterator<Item = Cost> {
    parts_within(&process.costs, process.memory.resident_bytes)
}

/// The bytes of a cost curve at no more than that price, nanoseconds a MiB.
pub fn below(points: &[Cost], bar: u64) -> u64 {
    let bar = Cost { bytes: 1 << 20, once_ns: bar, ..Cost::default() };
    parts(points).take_while(|part| !bar.is_cheaper(part)).fold(0, |sum, part| sum.saturating_add(part.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_cli::survey::Memory;

    const MIB: u64 = 1 << 20;

    fn process(resident: u64, idle: Option<u64>, costs: &[Cost]) -> Process {
        let memory = Memory { resident_bytes: resident, ..Memory::default() };
        let memory = idle.map_or(memory, |idle| memory.with_parts([idle, idle, 0, 0, 0, 0]));
        Process {
            pid: 1,
            started_ticks: 1,
            command: "x".into(),
            memory,
            evictable_bytes: 5,
            released_bytes: 100,
            touched_again_bytes: 25,
            costs: costs.to_vec(),
        }
    }

    #[test]
    fn spare_is_what_is_cheaper_than_the_bar() {
        let idle = Cost { bytes: 10 * MIB, once_ns: 4_000_000, ..Cost::default() };
        let cheap = Cost { bytes: 5 * MIB, second_ns: 500_000, ..Cost::default() };
        let dear = Cost { bytes: 80 * MIB, second_ns: 800_000_000, ..Cost::default() };
        let costs = [idle, idle.plus(&cheap), idle.plus(&cheap).plus(&dear)];
        assert_eq!([0, 400_000, 1_000_000, u64::MAX].map(|bar| below(&costs, bar) / MIB), [0, 10, 15, 95]);
        let sum = Figures::default().and(&process(100 * MIB, Some(12 * MIB), &costs), 1_000_000);
        assert_eq!((sum.spare, sum.idle, sum.processes), (15 * MIB, 12 * MIB, 1));
        // Without a curve what is idle; never more than there is.
        let sum = sum.and(&process(100 * MIB, Some(7 * MIB), &[]), 1_000_000);
        assert_eq!(sum.spare, 22 * MIB);
        let sum = sum.and(&process(3 * MIB, None, &costs), u64::MAX);
        assert_eq!((sum.spare, sum.resident, sum.refault_share()), (25 * MIB, 203 * MIB, 0.25));
        assert_eq!((sum.unknown, sum.has_parts()), (3 * MIB, true));
        let sum = sum.and(&process(20 * MIB, None, &costs), u64::MAX);
        assert_eq!((sum.unknown, sum.has_parts()), (23 * MIB, false));
    }
}
