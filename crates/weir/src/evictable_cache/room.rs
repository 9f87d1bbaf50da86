//! How much a cache holds, and may hold: it grows while memory is free.

use core::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use super::seams;

/// The target grows by 1/16, but by at least 64 KiB and at most 16 MiB at a time, so that the question whether memory is
/// free is put seldom.
const STEP_SHARE: usize = 16;
pub const LEAST_STEP: usize = 64 << 10;
const MOST_STEP: usize = 16 << 20;

/// What is held, and what may be. On cache lines of its own: insertions write it, and what lies beside it every look-up
/// reads.
#[derive(Debug)]
#[repr(align(64))]
pub struct Room {
    /// The weight of the entries, and of those about to be put in.
    pub bytes: AtomicUsize,
    /// The entries.
    pub entries: AtomicUsize,
    /// The weight that the cache keeps to. It rises while memory is free.
    pub target: AtomicUsize,
    /// The weight that it never exceeds.
    pub max: AtomicUsize,
    /// The weight that pressure leaves.
    pub min: usize,
    /// An entry was evicted for another.
    pub has_replaced: AtomicBool,
    /// Pressure has lowered the target, and is not over.
    pub is_pressed: AtomicBool,
}

impl Room {
    /// Nothing held.
    pub const fn new(min: usize, max: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
            target: AtomicUsize::new(min),
            max: AtomicUsize::new(max),
            min,
            has_replaced: AtomicBool::new(false),
            is_pressed: AtomicBool::new(false),
        }
    }

    /// Counts so many bytes as held, if the target has room for them.
    #[inline]
    pub fn take(&self, weight: usize) -> bool {
        let take = |bytes: usize| bytes.checked_add(weight).filter(|&sum| sum <= self.target.load(Relaxed));
        self.bytes.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    /// Raises the target to have room for `wanted` bytes in all, if it may.
    ///
    /// The target is exchanged for the one that was looked at, so that an eviction meanwhile keeps it down.
    pub fn grow(&self, wanted: usize) -> bool {
        loop {
            let (target, max) = (self.target.load(Relaxed), self.max.load(Relaxed));
            if wanted <= target {
                return true;
            }
            if wanted > max || (self.is_pressed.load(Relaxed) && wanted > self.min) {
                return false;
            }
            let step = (target / STEP_SHARE).clamp(LEAST_STEP, MOST_STEP);
            let goal = target.saturating_add(step).max(wanted).min(max);
            if goal > self.min && !seams::may_grow(goal - target) {
                return false;
            }
            if self.target.compare_exchange(target, goal, SeqCst, Relaxed).is_ok() {
                // The bound may have been lowered since it was read. `set_max` stores it, then lowers the target: either
                // that comes after the exchange, or the new bound is read here, as all four are in one order.
                self.target.fetch_min(self.max.load(SeqCst), SeqCst);
                return true;
            }
        }
    }

    /// Exchanges bytes that an eviction freed, and are counted still, for `weight` bytes of an entry for which they went;
    /// false where they are fewer, and there is no room for the rest.
    ///
    /// Until then no other thread can take them. So an insertion evicts about what it needs, and never more because others
    /// insert too; and where the target fell, what is held comes down by the difference.
    #[inline]
    pub fn exchange(&self, freed: usize, weight: usize) -> bool {
        match freed.checked_sub(weight) {
            Some(rest) => {
                self.give(rest);
                true
            }
            None => self.take(weight - freed),
        }
    }

    /// Gives bytes back.
    #[inline]
    pub fn give(&self, weight: usize) {
        if weight > 0 {
            self.bytes.fetch_sub(weight, Relaxed);
        }
    }

    /// Notes that an entry was evicted for another.
    #[inline]
    pub fn note_replacement(&self) {
        if !self.has_replaced.load(Relaxed) {
            self.has_replaced.store(true, Relaxed);
        }
    }
}
