//! The budget: what NORMAL may hold, and how much of that is left.
//!
//! A *reading* says how much more may become resident below the tightest limit. Such limits are the setting `limit`, the control
//! group's own or an ancestor's limit, and the machine. Between two readings the estimate follows what became resident and what
//! was released here; what others take shows in the next reading.

use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, Release},
};

/// A reading: the tightest limit, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes that may be resident below the limit; 0: nothing limits it, or nothing is known.
    pub capacity: u64,
    /// Bytes that are resident, the share of others included. More than the capacity where the limit was lowered below it.
    pub used: u64,
    /// No other process shares the limit.
    pub is_own: bool,
}

impl Room {
    /// Below a limit that others may share.
    pub const fn shared(capacity: u64, used: u64) -> Self {
        Self { capacity, used, is_own: false }
    }

    /// Below a limit of this process alone: a setting, or a target.
    pub const fn own(capacity: u64, used: u64) -> Self {
        Self { capacity, used, is_own: true }
    }

    /// Bytes that may still become resident.
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }
}

/// See the module. All in bytes.
pub struct Budget {
    capacity: AtomicU64,
    used: AtomicU64,
    /// Released in all, as of the reading.
    released: AtomicU64,
    /// Became resident since the reading.
    fresh: AtomicU64,
    is_own: AtomicBool,
}

impl Budget {
    /// Nothing is known.
    pub(crate) const fn new() -> Self {
        let [capacity, used, released, fresh] = [const { AtomicU64::new(0) }; 4];
        Self { capacity, used, released, fresh, is_own: AtomicBool::new(false) }
    }

    /// A reading, at which `released` bytes had been released in all. A thread that reads the parts meanwhile gets an estimate
    /// between the old one and the new. Returns how much more is in use than was estimated, bytes; 0 for another limit.
    pub(crate) fn read(&self, room: Room, released: u64) -> i64 {
        let estimate = self.room(released);
        let is_same = (estimate.capacity, estimate.is_own) == (room.capacity, room.is_own);
        let others = if is_same { room.used.wrapping_sub(estimate.used).cast_signed() } else { 0 };
        self.fresh.store(0, Relaxed);
        self.released.store(released, Relaxed);
        self.used.store(room.used, Relaxed);
        self.is_own.store(room.is_own, Relaxed);
        self.capacity.store(room.capacity, Release);
        others
    }

    /// `bytes` became resident.
    #[inline]
    pub(crate) fn fresh(&self, bytes: u64) {
        self.fresh.fetch_add(bytes, Relaxed);
    }

    /// The estimate now; `released` bytes have been released in all.
    pub(crate) fn room(&self, released: u64) -> Room {
        let capacity = self.capacity.load(Relaxed);
        // A forked child counts what it released from 0 on.
        let since = released.saturating_sub(self.released.load(Relaxed));
        // What is above a lowered limit has to go before anything is free.
        let used = self.used.load(Relaxed).saturating_add(self.fresh.load(Relaxed)).saturating_sub(since);
        Room { capacity, used, is_own: self.is_own.load(Relaxed) }
    }

    /// In a forked child: its own thread reads anew.
    pub(crate) fn inherit(&self) {
        self.read(Room::default(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_between_readings() {
        let budget = Budget::new();
        assert_eq!(budget.room(5), Room::default());
        assert_eq!(budget.read(Room::shared(1000, 900), 5), 0);
        budget.fresh(60);
        assert_eq!(budget.room(5).free(), 40);
        assert_eq!(budget.room(25).free(), 60);
        budget.fresh(1000);
        assert_eq!(budget.room(25).free(), 0, "more than there was: nothing is left, not a wrapped number");
        assert_eq!(budget.room(u64::MAX).free(), 1000, "never more than the capacity");
        assert_eq!(budget.room(0).free(), 0, "a child's total begins anew");
        // The limit is lowered below what is in use: what is above it goes before anything is free.
        assert_eq!(budget.read(Room::shared(500, 800), 25), 0);
        assert_eq!((budget.room(25).free(), budget.room(325).free(), budget.room(335).free()), (0, 0, 10));
        // What is in use beyond the estimate, others have; what the process took and released itself is in it.
        budget.fresh(60);
        assert_eq!(budget.read(Room::shared(500, 870), 45), 30);
        assert_eq!(budget.read(Room::shared(500, 800), 45), -70);
    }
}
