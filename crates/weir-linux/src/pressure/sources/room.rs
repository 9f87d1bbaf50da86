//! The tightest of all limits: the process's own, those of its control group and the ancestors, the machine.

use crate::os::fd;
use crate::os::file::text::{after, number, words};
use crate::pressure::group::cgroup::GroupDir;
use crate::pressure::group::groups::with_open;
use crate::pressure::group::memcg;
use weir_core::base::units::Pages;
use weir_core::policy::watermarks::Marks;
use weir_core::reclaim::budget::Room;

/// A group's clean file pages are looked up where as little of a limit is left as this part, in percent. In more room
/// they make no difference to any watermark.
const PERCENT_NEAR: u64 = 25;

/// The room below the limits of a group and of its visible ancestors.
pub(super) fn of_group(group: &GroupDir) -> impl Iterator<Item = Room> {
    memcg::rooms(group, PERCENT_NEAR)
        .map(|room| Room { group: group.number(room.up), ..Room::shared(room.limit, room.working_set) })
}

/// The machine's room, by the text of `/proc/meminfo`.
pub(super) fn of_machine(text: &[u8]) -> Option<Room> {
    let bytes = |key: &[u8]| number(words(after(text, key)?).next()?)?.checked_mul(1024);
    let capacity = bytes(b"MemTotal:")?;
    Some(Room::shared(capacity, capacity.saturating_sub(bytes(b"MemAvailable:")?)))
}

/// Bytes that the machine has left without swapping, read now.
pub fn machine_free() -> Option<u64> {
    // The two lines are among the first three of some fifty.
    let mut buf = [0u8; 512];
    Some(of_machine(fd::read_file(c"/proc/meminfo", &mut buf).ok()?)?.free())
}

/// The lowest limit of the process's group and of the ancestors, bytes, read now. None: nothing limits them.
pub fn group_limit() -> Option<u64> {
    with_open(|memory, _| memcg::effective_limits(memory?).lowest())
}

/// The limit that is nearest to its own high mark, or farthest above it.
pub(super) fn tightest(rooms: impl Iterator<Item = Room>, scale: u64) -> Option<Room> {
    rooms.min_by_key(|room| {
        let high = Marks::of(Pages::in_bytes(room.capacity as usize), scale as usize).high.bytes().0;
        i128::from(room.capacity) - i128::from(room.used) - high as i128
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_tightest_is_not_the_smallest_but_the_one_with_least_to_spare() {
        let small = Room::shared(64 * MIB, 32 * MIB);
        let machine = Room::shared(1 << 34, (1 << 34) - 33 * MIB);
        let rooms = || [small, machine].into_iter();
        assert_eq!(
            tightest(rooms(), 250),
            Some(machine),
            "a machine that has 33 MiB left is short, 32 of 64 are plenty"
        );
        let full = Room::shared(64 * MIB, 64 * MIB);
        assert_eq!(tightest([full, Room { used: 1 << 33, ..machine }].into_iter(), 250), Some(full));
        // Two limits are exceeded: the one that is exceeded by more.
        let over = Room { used: 80 * MIB, ..full };
        assert_eq!(tightest([full, over].into_iter(), 250), Some(over));
        assert_eq!(tightest(core::iter::empty(), 250), None);
    }

    #[test]
    fn meminfo() {
        let text =
            b"MemTotal:       24646476 kB\nMemFree:         1000 kB\nMemAvailable:   20000000 kB\nBuffers: 1 kB\n";
        let room = Room::shared(24_646_476 * 1024, 4_646_476 * 1024);
        assert_eq!(of_machine(text), Some(room));
        assert_eq!(of_machine(b"MemTotal: 1 kB\n"), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text: Vec<u8>, rooms: Vec<(u64, u64)>, scale in 1u64..=1000) {
            let _ = of_machine(&text);
            let _ = tightest(rooms.into_iter().map(|(capacity, used)| Room::shared(capacity, used)), scale);
        }
    }
}
