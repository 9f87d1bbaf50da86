//! Who gives when the machine is short: the cheapest bytes of all processes, by their cost curves. What is idle costs least.

use crate::machine::figures::parts_of;
use crate::machine::shortage::State;
use std::collections::BTreeMap;
use weir_cli::survey::{Cost, Process};

/// A process is asked for no less than this, bytes: each has to be talked to.
const LEAST: u64 = 1 << 20;
/// Tasks wait for memory for this part of the time where a machine that is not far from short is short.
const STALLED: f64 = 0.1;

/// Bytes that processes should give; 0: it is not short. It is where less than `low`, a part of all memory, is available, or
/// less than twice that and tasks wait for it. Asked for is what is missing to twice the mark.
pub fn missing(state: &State, low: f64) -> u64 {
    let low = (state.total as f64 * low) as u64;
    let is_short = state.available < low || state.available < 2 * low && state.stall >= STALLED;
    if is_short { (2 * low).saturating_sub(state.available) } else { 0 }
}

/// What each process is asked for, so that all together give `missing` bytes as cheaply as they can, or all they have. None is
/// asked for more than is resident: else one alone could be asked for all that is missing.
pub fn shares<'a>(processes: impl Iterator<Item = &'a Process>, missing: u64) -> BTreeMap<i32, u64> {
    let of_process = |process: &'a Process| parts_of(process).map(|part| (part, process.pid));
    let mut all: Vec<(Cost, i32)> = processes.flat_map(of_process).collect();
    let price = |part: &Cost| part.ns() as f64 / part.bytes as f64;
    all.sort_by(|(one, _), (other, _)| price(one).total_cmp(&price(other)));
    let (mut shares, mut missing) = (BTreeMap::new(), missing);
    for (part, pid) in all {
        if missing == 0 {
            break;
        }
        let bytes = part.bytes.min(missing);
        missing -= bytes;
        *shares.entry(pid).or_insert(0) += bytes;
    }
    shares.retain(|_, bytes| *bytes >= LEAST);
    shares
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_cli::survey::Memory;

    const MIB: u64 = 1 << 20;

    /// With 1,000 MiB resident. Each part of its curve is of some MiB at some price.
    pub(crate) fn process(pid: i32, costs: &[(u64, u64)]) -> Process {
        let part = |&(mib, price): &(u64, u64)| Cost { bytes: mib * MIB, once_ns: mib * price, ..Cost::default() };
        let sum = |sum: &mut Cost, part: Cost| {
            *sum = sum.plus(&part);
            Some(*sum)
        };
        Process {
            pid,
            started_ticks: 0,
            command: String::new(),
            memory: Memory { resident_bytes: 1000 * MIB, ..Memory::default() },
            evictable_bytes: 0,
            released_bytes: 0,
            touched_again_bytes: 0,
            costs: costs.iter().map(part).scan(Cost::default(), sum).collect(),
        }
    }

    #[test]
    fn the_cheapest_give_first() {
        let all = [process(1, &[(10, 400), (50, 9000)]), process(2, &[(20, 300), (50, 2000)]), process(3, &[])];
        let asked = |missing: u64| shares(all.iter(), missing * MIB);
        assert_eq!(asked(15), [(2, 15 * MIB)].into());
        assert_eq!(asked(25), [(1, 5 * MIB), (2, 20 * MIB)].into());
        assert_eq!(asked(70), [(1, 10 * MIB), (2, 60 * MIB)].into());
        assert_eq!(asked(7000), [(1, 60 * MIB), (2, 70 * MIB)].into(), "all there is");
        assert_eq!(asked(0), [].into());
    }

    #[test]
    fn who_says_that_it_has_more_than_is_resident_is_not_asked_for_more() {
        let liar =
            Process { memory: Memory { resident_bytes: 2 * MIB, ..Memory::default() }, ..process(1, &[(1 << 30, 0)]) };
        let all = [liar, process(2, &[(20, 300)])];
        assert_eq!(shares(all.iter(), 10 * MIB), [(1, 2 * MIB), (2, 8 * MIB)].into());
    }

    #[test]
    fn the_machine_is_short_below_its_mark_or_near_it_while_tasks_wait() {
        let of = |available, stall| missing(&State { total: 1000, available, stall }, 0.05);
        assert_eq!([of(49, 0.0), of(50, 0.0), of(90, 0.2), of(100, 1.0)], [51, 0, 10, 0]);
    }

    proptest! {
        #[test]
        fn no_more_is_asked_than_is_missing_nor_than_a_process_has(
            costs in prop::collection::vec(prop::collection::vec((1u64..100, 1u64..9999), 0..5), 0..20),
            wanted in 0u64..5000,
        ) {
            let all: Vec<Process> = costs.iter().enumerate().map(|(pid, costs)| process(pid as i32, costs)).collect();
            let shares = shares(all.iter(), wanted * MIB);
            prop_assert!(shares.values().sum::<u64>() <= wanted * MIB);
            for (pid, bytes) in shares {
                prop_assert!(bytes <= all[pid as usize].costs.last().unwrap().bytes);
            }
        }
    }
}
