//! How soon to look again at what is left below the tightest limit: by how fast others take it.
//!
//! A neighbour in the group that grows by 100 MiB a second takes 25 MiB between two readings, and a limit of 512 MiB has
//! 16 MiB left when the balancer is to wake. So the nearer the limit, the sooner the next look: each comes when about a quarter
//! of what is left will have gone. Below min growth of less than a MiB is no reason. What the heap itself takes is no reason: the budget's
//! estimate follows that without a look.

use weir_core::base::units::Pages;
use weir_core::policy::watermarks::Marks;
use weir_core::reclaim::budget::Room;

const MS: u64 = 1_000_000;
/// Growth below it may be the kernel's steps of 64 pages a CPU, bytes.
const NOISE: u64 = 1 << 20;
/// Between two readings of all that cannot notify, while the heap is warm.
pub(super) const READ_INTERVAL_NS: u64 = 250 * MS;
/// The usual time near a limit, where a neighbour that begins to grow has no rate yet.
const NEAR_NS: u64 = 100 * MS;
/// Near: at most such a part of the limit is left. A cache that has filled its group leaves a twentieth.
const NEAR: u64 = 16;
/// The least: a look takes about 60 us, which is 0.6 % of a CPU then.
const LEAST_NS: u64 = 10 * MS;
/// Time in which half of what others took is forgotten. So they take about as much in it as is remembered.
const HALF_NS: u64 = 500 * MS;
/// Of what is left, so much may go until the next look: a quarter.
const PARTS: u64 = 4;

/// What the last looks found.
#[derive(Debug)]
pub(super) struct Pace {
    /// The last one, ns.
    at: u64,
    /// Bytes that others took lately. The kernel counts in steps of some hundred KiB, up and down: what they gave back counts
    /// against it.
    lately: u64,
    interval: u64,
}

impl Pace {
    /// Nothing was read.
    pub(super) const fn new() -> Self {
        Self { at: 0, lately: 0, interval: READ_INTERVAL_NS }
    }

    /// A look at `now`; others took `others` bytes since the last reading, or gave so many back.
    pub(super) fn note(&mut self, room: Room, others: i64, now: u64) {
        let elapsed = now.saturating_sub(self.at).min(HALF_NS);
        let forgotten = (u128::from(self.lately) * u128::from(elapsed) / u128::from(2 * HALF_NS)) as u64;
        self.lately = (self.lately - forgotten).saturating_add_signed(others);
        self.at = now;
        if room.capacity == 0 {
            self.interval = READ_INTERVAL_NS;
            return;
        }
        let free = room.free();
        let most = if free < room.capacity / NEAR { NEAR_NS } else { READ_INTERVAL_NS };
        // Below min each step of the kernel's count would be a reason.
        let is_behind = free < Marks::of(Pages::in_bytes(room.capacity as usize), 0).min.bytes().0 as u64;
        let lately = if is_behind && self.lately < NOISE { 0 } else { self.lately };
        let part = u128::from(free / PARTS) * u128::from(HALF_NS);
        let until = part.checked_div(u128::from(lately)).unwrap_or(u128::MAX);
        self.interval = until.clamp(LEAST_NS.into(), most.into()) as u64;
    }

    /// When to look next, ns; `None`: the readings are soon enough.
    pub(super) fn due(&self) -> Option<u64> {
        (self.interval < READ_INTERVAL_NS).then(|| self.at.saturating_add(self.interval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 512 * MIB;

    fn left(free: u64) -> Room {
        Room::shared(LIMIT, LIMIT - free)
    }

    /// What is left at each reading while others take `rate` bytes a second, until `enough` or less is.
    fn readings(rate: u64, mut free: u64, enough: u64) -> Vec<u64> {
        let (mut pace, mut now, mut seen, mut taken) = (Pace::new(), 0, Vec::new(), 0);
        while free > enough {
            pace.note(left(free), taken as i64, now);
            seen.push(free);
            now += pace.interval;
            taken = free.min((u128::from(rate) * u128::from(pace.interval) / 1_000_000_000) as u64);
            free -= taken;
        }
        seen.push(free);
        seen
    }

    #[test]
    fn whoever_grows_steadily_is_seen_before_a_low_mark_is_far_behind() {
        for rate in [20 * MIB, 100 * MIB, 400 * MIB] {
            let seen = readings(rate, 300 * MIB, 16 * MIB);
            assert!(*seen.last().unwrap() > 11 * MIB, "{rate} bytes a second: {seen:?}");
            assert!(seen.len() < 70, "{rate} bytes a second: {seen:?}");
        }
    }

    #[test]
    fn where_little_goes_or_nothing_limits_it_the_usual_time_passes() {
        let mut pace = Pace::new();
        for (at, (free, others)) in [(300, 0), (299, 1), (300, -1), (298, 2), (299, -1)].into_iter().enumerate() {
            pace.note(left(free * MIB), others << 20, at as u64 * READ_INTERVAL_NS);
            assert_eq!(pace.interval, READ_INTERVAL_NS);
        }
        pace.note(Room::default(), 0, 10 * READ_INTERVAL_NS);
        assert_eq!(pace.interval, READ_INTERVAL_NS);
    }

    #[test]
    fn growth_is_not_forgotten_where_reclaim_made_up_for_it() {
        let mut pace = Pace::new();
        for (at, others) in [(0, 0), (250, 25), (300, 5), (350, 5)] {
            pace.note(left(34 * MIB), others << 20, at * MS);
        }
        assert!((100 * MS..READ_INTERVAL_NS).contains(&pace.interval), "{pace:?}");
        for at in 1..30 {
            pace.note(left(34 * MIB), 0, 350 * MS + at * NEAR_NS);
        }
        assert_eq!(pace.interval, READ_INTERVAL_NS, "{pace:?}");
    }

    #[test]
    fn at_a_full_limit_growth_is_forgotten_too() {
        let (mut pace, mut looks) = (Pace::new(), 0);
        pace.note(left(0), 100 << 20, 0);
        assert_eq!(pace.interval, LEAST_NS);
        while pace.interval < NEAR_NS {
            pace.note(left(0), 0, pace.at + pace.interval);
            looks += 1;
            assert!(looks < 3000, "{pace:?}");
        }
    }

    /// The kernel charges a CPU 64 pages at a time, and takes back what it did not use.
    #[test]
    fn at_a_small_limit_steps_of_the_kernels_count_are_no_growth() {
        for free in [0, 4 << 10, 300 << 10, 600 << 10] {
            let (mut pace, room) = (Pace::new(), Room::shared(14 * MIB, 14 * MIB - free));
            for at in 1..20 {
                pace.note(room, if at % 2 == 0 { 256 << 10 } else { -256 << 10 }, at * NEAR_NS);
                assert_eq!(pace.interval, NEAR_NS, "{free} bytes left: {pace:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn figures_of_any_kind_give_a_time_between_the_two(looks: Vec<(u64, u64, i64, u64)>) {
            let mut pace = Pace::new();
            for (capacity, used, others, now) in looks {
                pace.note(Room::shared(capacity, used), others, now);
                prop_assert!((LEAST_NS..=READ_INTERVAL_NS).contains(&pace.interval));
            }
        }
    }
}
