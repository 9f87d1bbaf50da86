//! The budget: what NORMAL may hold, and how much of that is left.
//!
//! A *reading* says how much more may become resident below the tightest limit. Such limits are the setting `limit`, the control
//! group's own or an ancestor's limit, and the machine. Between two readings the estimate follows what became resident and what
//! was released here; what others take shows in the next reading.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::base::time::{Nanos, Time};
use crate::platform::sync::{AtomicBool, AtomicU64, array, constructor};

/// A reading: the tightest limit, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes that may be resident below the limit; 0: nothing limits it, or nothing is known.
    pub capacity: u64,
    /// Bytes that are resident, the share of others included. More than the capacity where the limit was lowered below it.
    pub used: u64,
    /// No other process shares the limit.
    pub is_own: bool,
    /// The number of the control group that has the limit; 0: no group has it, or none is known. By it processes tell whether they
    /// live below one limit, as others may be as large.
    pub group: u64,
}

impl Room {
    /// Below a limit that others may share.
    pub const fn shared(capacity: u64, used: u64) -> Self {
        Self { capacity, used, is_own: false, group: 0 }
    }

    /// Below a limit of this process alone: a setting, or a target.
    pub const fn own(capacity: u64, used: u64) -> Self {
        Self { capacity, used, is_own: true, group: 0 }
    }

    /// Bytes that may still become resident.
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }
}

/// How long what was told may take to show. A thread touches 4 MiB in 1 to 2 ms, and on a busy machine after a slice of another's.
const LATE: Nanos = Nanos(10_000_000);

/// After so long promises are not kept any more: a signal handler jumped out of an allocation. One waits for a second for a cache,
/// for as long for the balancer, and else for `callback_ms`, which is less as a rule. Where it is more, or threads promise without
/// a gap for so long, promises of threads that wait are forgotten, and told as they end.
const LOST: Nanos = Nanos(5_000_000_000);

/// See the module. All in bytes.
///
/// No lock guards the parts. What threads do between two loads of a reading shifts the estimate by their requests, until the next
/// reading. It may count bytes twice meanwhile. One order is kept: bytes go from `promised` to `fresh`, and from there to `late` or
/// `used`. They are added to the next part before they are taken from the last one, and the parts are loaded in this order. Else a
/// reader could find bytes in neither, just where they are missing (`weir-models/tests/reclaim/budget.rs`).
pub struct Budget {
    capacity: AtomicU64,
    used: AtomicU64,
    /// Released in all, as of the reading.
    released: AtomicU64,
    /// Became resident since the reading.
    fresh: AtomicU64,
    /// When the last of that was handed out, ns.
    handed_out_at: AtomicU64,
    /// Told before the reading, which did not show it.
    late: AtomicU64,
    /// Since when some of that is, ns.
    late_since: AtomicU64,
    /// Will become resident, once reclaim has made room for it: no reading has found any of it yet.
    promised: AtomicU64,
    /// When the first of that was promised, ns.
    promised_at: AtomicU64,
    is_own: AtomicBool,
    group: AtomicU64,
    /// Half of what was free at the reading is gone since.
    is_old: AtomicBool,
}

impl Budget {
    constructor! {
        /// Nothing is known.
        #[allow(clippy::new_without_default, reason = "const, and only ever a field")]
        pub fn new() -> Self {
            let [capacity, used, released, fresh, handed_out_at, late, late_since, promised, promised_at, group] =
                array![AtomicU64::new(0); 10];
            Self {
                capacity,
                used,
                released,
                fresh,
                handed_out_at,
                late,
                late_since,
                promised,
                promised_at,
                is_own: AtomicBool::new(false),
                group,
                is_old: AtomicBool::new(false),
            }
        }
    }

    /// A reading, at which `released` bytes had been released in all. A thread that reads the parts meanwhile gets an estimate
    /// between the old one and the new. Returns how much more is in use than was estimated, bytes; 0 for another limit.
    ///
    /// What was told and does not show yet is about to: it counts for [`LATE`] more, below the same limit.
    pub(crate) fn read(&self, room: Room, released: u64, now: Time) -> i64 {
        // What becomes resident from here on is of the new reading.
        self.is_old.store(false, Relaxed);
        if self.promised.load(Acquire) > 0 && now.since(Time(self.promised_at.load(Relaxed))) >= LOST {
            self.promised.store(0, Relaxed);
        }
        let estimate = self.room(released);
        let limit = |room: &Room| (room.capacity, room.is_own, room.group);
        let is_same = limit(&estimate) == limit(&room);
        let [fresh, late, promised] = [&self.fresh, &self.late, &self.promised].map(|bytes| bytes.load(Relaxed));
        let told = fresh.saturating_add(late);
        let shown = room.used.saturating_sub(estimate.used.saturating_sub(told.saturating_add(promised)));
        let is_over = |since: &AtomicU64| now.since(Time(since.load(Relaxed))) >= LATE;
        let is_new = late == 0 || is_over(&self.late_since);
        let about_to = if is_new { fresh } else { told };
        let is_late = is_same && !is_over(&self.handed_out_at);
        let late = if is_late { told.saturating_sub(shown).min(about_to) } else { 0 };
        if is_new {
            self.late_since.store(now.0, Relaxed);
        }
        // In the reverse of the order in which `room` loads them.
        self.is_own.store(room.is_own, Relaxed);
        self.group.store(room.group, Relaxed);
        self.released.store(released, Relaxed);
        self.used.store(room.used, Release);
        self.capacity.store(room.capacity, Release);
        self.late.store(late, Release);
        let _ = self.fresh.fetch_update(Release, Relaxed, |now| Some(now.saturating_sub(fresh)));
        let expected = estimate.used.saturating_sub(late.saturating_add(promised));
        if is_same { room.used.wrapping_sub(expected).cast_signed() } else { 0 }
    }

    /// `bytes` are about to be handed out, by [`Budget::hand_out`], and to become resident after that. Until then a reading leaves
    /// them in the estimate.
    #[inline]
    pub(crate) fn promise(&self, bytes: u64, now: Time) {
        // The time first: a reading must not take a new promise for one of long ago.
        if self.promised.load(Relaxed) == 0 {
            self.promised_at.store(now.0, Relaxed);
        }
        self.promised.fetch_add(bytes, Release);
    }

    /// `bytes` that were promised are handed out. Whether half of what was free at the reading is gone by that: what nobody tells,
    /// as page tables and what others take, is then worth another reading.
    #[inline]
    pub(crate) fn hand_out(&self, bytes: u64, now: Time) -> bool {
        self.handed_out_at.store(now.0, Relaxed);
        let before = self.fresh.fetch_add(bytes, Relaxed);
        // In a forked child, or after `LOST`, they are not promised any more.
        let _ = self.promised.fetch_update(Release, Relaxed, |promised| Some(promised.saturating_sub(bytes)));
        let half = self.capacity.load(Relaxed).saturating_sub(self.used.load(Relaxed)) / 2;
        let is_old = before < half && half <= before.saturating_add(bytes);
        if is_old {
            self.is_old.store(true, Relaxed);
        }
        is_old
    }

    /// Whether another reading is wanted: [`Budget::hand_out`] said so since the last.
    pub(crate) fn is_old(&self) -> bool {
        self.is_old.load(Relaxed)
    }

    /// The estimate now; `released` bytes have been released in all.
    pub(crate) fn room(&self, released: u64) -> Room {
        let capacity = self.capacity.load(Acquire);
        // What is above a lowered limit has to go before anything is free.
        // In this order: what moves from one to the next meanwhile counts twice for a moment, and is never in neither.
        let parts = [&self.promised, &self.fresh, &self.late, &self.used];
        let used = parts.iter().fold(0u64, |sum, bytes| sum.saturating_add(bytes.load(Acquire)));
        // A forked child counts what it released from 0 on.
        let since = released.saturating_sub(self.released.load(Relaxed));
        let (is_own, group) = (self.is_own.load(Relaxed), self.group.load(Relaxed));
        Room { capacity, used: used.saturating_sub(since), is_own, group }
    }

    /// In a forked child: its own thread reads anew. Threads that had promises are not there.
    pub(crate) fn inherit(&self) {
        self.promised.store(0, Relaxed);
        self.late.store(0, Relaxed);
        self.fresh.store(0, Relaxed);
        self.read(Room::default(), 0, Time::ZERO);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Long after each other.
    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    /// Bytes are promised and handed out at once.
    fn takes(budget: &Budget, bytes: u64, now: Time) -> bool {
        budget.promise(bytes, now);
        budget.hand_out(bytes, now)
    }

    #[test]
    fn the_estimate_follows_between_readings() {
        let budget = Budget::new();
        assert_eq!(budget.room(5), Room::default());
        assert_eq!(budget.read(Room::shared(1000, 900), 5, at(1)), 0);
        assert!(!takes(&budget, 40, at(1)));
        assert!(takes(&budget, 20, at(1)), "half of what was free");
        assert_eq!(budget.room(5).free(), 40);
        assert_eq!(budget.room(25).free(), 60);
        assert!(!takes(&budget, 1000, at(1)), "it is said once a reading");
        assert_eq!(budget.room(25).free(), 0, "more than there was: nothing is left, not a wrapped number");
        assert_eq!(budget.room(u64::MAX).free(), 1000, "never more than the capacity");
        assert_eq!(budget.room(0).free(), 0, "a child's total begins anew");
        // The limit is lowered below what is in use: what is above it goes before anything is free.
        assert_eq!(budget.read(Room::shared(500, 1940), 25, at(2)), 0);
        assert_eq!(budget.read(Room::shared(500, 800), 25, at(3)), -1140);
        assert_eq!((budget.room(25).free(), budget.room(325).free(), budget.room(335).free()), (0, 0, 10));
        // What is in use beyond the estimate, others have; what the process took and released itself is in it.
        takes(&budget, 60, at(3));
        assert_eq!(budget.read(Room::shared(500, 870), 45, at(4)), 30);
        assert_eq!(budget.read(Room::shared(500, 800), 45, at(5)), -70);
    }

    #[test]
    fn what_was_told_and_does_not_show_counts_a_little_longer() {
        let budget = Budget::new();
        let room = |used| Room::shared(1000, used);
        assert_eq!(budget.read(room(500), 0, at(1)), 0);
        takes(&budget, 200, at(2));
        assert_eq!(budget.read(room(550), 0, at(2)), 0);
        assert_eq!(budget.room(0).used, 700, "50 of 200 show");
        assert_eq!(budget.read(room(600), 0, at(2) + LATE / 2), 0);
        assert_eq!(budget.room(0).used, 700);
        takes(&budget, 100, at(2) + LATE);
        assert_eq!(budget.read(room(600), 0, at(2) + LATE), -100, "what was told before never came");
        assert_eq!(budget.room(0).used, 700, "what was told since may");
        assert_eq!(budget.read(room(700), 0, at(3)), 0);
        assert_eq!(budget.room(0).used, 700);
        takes(&budget, 100, at(4));
        assert_eq!(budget.read(room(700), 0, at(4) + LATE), -100, "it was told long ago");
        assert_eq!(budget.room(0).used, 700);
        takes(&budget, 100, at(5));
        assert_eq!(budget.read(Room::shared(900, 700), 0, at(5)), 0);
        assert_eq!(budget.room(0).used, 700, "of another limit nothing is known");
    }

    #[test]
    fn what_is_promised_outlives_a_reading_and_is_resident_afterwards() {
        let budget = Budget::new();
        let room = |used| Room::shared(1000, used);
        budget.read(room(500), 0, at(1));
        budget.promise(200, at(2));
        assert_eq!(budget.room(0).used, 700);
        assert_eq!(budget.read(room(500), 0, at(2)), 0, "nothing of it was touched yet");
        assert_eq!(budget.room(0).used, 700, "but it will be");
        budget.hand_out(200, at(2));
        assert_eq!(budget.room(0).used, 700);
        assert_eq!(budget.read(room(700), 0, at(3)), 0);
        assert_eq!(budget.room(0).used, 700, "the next reading has it");
        budget.promise(200, at(3));
        assert_eq!(budget.read(room(700), 0, at(4)), 0);
        assert_eq!(budget.read(room(700), 0, at(3) + LOST), 0);
        assert_eq!(budget.room(0).used, 700, "who promised never came back");
        budget.promise(200, at(9));
        budget.inherit();
        budget.hand_out(200, at(9));
        assert_eq!(budget.room(0).used, 200, "in a forked child nothing is below 0");
    }
}
