//! How soon to look again at what is left below the tightest limit: by how fast that becomes less.
//!
//! A neighbour in the group that grows by 100 MiB a second takes 25 MiB between two readings, and a limit of 512 MiB has
//! 16 MiB left when the balancer is to wake. So the nearer the limit, the sooner the next look: each comes when about a quarter
//! of what is left will have gone.

use weir_core::reclaim::budget::Room;

const MS: u64 = 1_000_000;
/// Between two readings of all that cannot notify, while the heap is warm.
pub(super) const READ_INTERVAL_NS: u64 = 250 * MS;
/// The usual time near a limit, where a neighbour that begins to grow has no rate yet.
const NEAR_NS: u64 = 100 * MS;
/// Near: at most such a part of the limit is left. A cache that has filled its group leaves a twentieth.
const NEAR: u64 = 16;
/// The least: a look takes about 60 us, which is 0.6 % of a CPU then.
const LEAST_NS: u64 = 10 * MS;
/// Time in which a rate falls by half.
const HALF_NS: u64 = 1_000 * MS;
/// Of what is left, so much may go until the next look: a quarter.
const PARTS: u64 = 4;

/// What the last looks found.
#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes that were left at the last one, and when it was, ns.
    free: u64,
    at: u64,
    /// Bytes that go in a second, at most as of late. Reclaim makes up for what goes, so it falls by half in a second at the soonest.
    rate: u64,
    interval: u64,
}

impl Pace {
    /// Nothing was read.
    pub(super) const fn new() -> Self {
        Self { free: 0, at: 0, rate: 0, interval: READ_INTERVAL_NS }
    }

    /// A look at `now`.
    pub(super) fn note(&mut self, room: Room, now: u64) {
        let (free, elapsed) = (room.free(), now.saturating_sub(self.at).max(1));
        let gone = self.free.saturating_sub(free);
        let rate = (u128::from(gone) * 1_000_000_000 / u128::from(elapsed)).min(u128::from(u64::MAX)) as u64;
        let fallen = (u128::from(self.rate) * u128::from(elapsed.min(HALF_NS)) / u128::from(2 * HALF_NS)) as u64;
        (self.free, self.at, self.rate) = (free, now, rate.max(self.rate - fallen));
        if room.capacity == 0 {
            self.interval = READ_INTERVAL_NS;
            return;
        }
        let most = if free < room.capacity / NEAR { NEAR_NS } else { READ_INTERVAL_NS };
        let part = u128::from(free / PARTS) * 1_000_000_000;
        let until = part.checked_div(u128::from(self.rate)).unwrap_or(u128::MAX);
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

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 512 * MIB;

    /// What is left at each reading while `rate` bytes go in a second, until `enough` or less is.
    fn readings(rate: u64, mut free: u64, enough: u64) -> Vec<u64> {
        let (mut pace, mut now, mut seen) = (Pace::new(), 0, Vec::new());
        while free > enough {
            pace.note(Room { capacity: LIMIT, used: LIMIT - free }, now);
            seen.push(free);
            now += pace.interval;
            free = free.saturating_sub((u128::from(rate) * u128::from(pace.interval) / 1_000_000_000) as u64);
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
        for (at, free) in [300, 299, 300, 298, 299].into_iter().enumerate() {
            pace.note(Room { capacity: LIMIT, used: LIMIT - free * MIB }, at as u64 * READ_INTERVAL_NS);
            assert_eq!(pace.interval, READ_INTERVAL_NS);
        }
        pace.note(Room::default(), 10 * READ_INTERVAL_NS);
        assert_eq!(pace.interval, READ_INTERVAL_NS);
    }

    #[test]
    fn growth_is_not_forgotten_where_reclaim_made_up_for_it() {
        let mut pace = Pace::new();
        for (at, free) in [(0, 60), (250, 35), (300, 30), (350, 34)] {
            pace.note(Room { capacity: LIMIT, used: LIMIT - free * MIB }, at * MS);
        }
        assert!(pace.interval < 100 * MS, "{pace:?}");
        for at in 1..60 {
            pace.note(Room { capacity: LIMIT, used: LIMIT - 34 * MIB }, 350 * MS + at * NEAR_NS);
        }
        assert_eq!(pace.interval, READ_INTERVAL_NS, "{pace:?}");
    }

    #[test]
    fn figures_of_any_kind_give_a_time_between_the_two() {
        let mut pace = Pace::new();
        for (capacity, used, now) in [(u64::MAX, 0, 0), (u64::MAX, u64::MAX, 0), (1, 2, u64::MAX), (u64::MAX, 0, 5)] {
            pace.note(Room { capacity, used }, now);
            assert!((LEAST_NS..=READ_INTERVAL_NS).contains(&pace.interval));
        }
    }
}
