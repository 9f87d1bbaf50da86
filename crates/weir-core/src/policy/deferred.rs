//! How much of a cache a shrinker is told to scan, and what is left for later: Linux's arithmetic (`mm/shrinker.c`,
//! `do_shrink_slab`), in bytes.
//!
//! A scan at priority p takes `freeable >> p` bytes, times 4, divided by the cost of an object (`seeks`), in batches.
//! What is less than a batch, or was not done, is deferred: a later scan adds a part of it, `deferred >> p`. Both what
//! one scan takes and what is deferred are at most twice what the cache could free. So a cache that refused for long is
//! not emptied at once by the work of an hour.

use core::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Cost of an object that takes one access to storage and one to find it again. (`DEFAULT_SEEKS`, Linux.)
pub const DEFAULT_SEEKS: u32 = 2;

/// Plan of one scan, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes that could be freed as the scan began; not 0.
    pub freeable: usize,
    /// Bytes deferred before.
    pub deferred: usize,
    /// Bytes that this scan adds.
    pub delta: usize,
    /// Bytes that this scan may take in all.
    pub total: usize,
}

impl Plan {
    /// The plan for a cache that could free `freeable` bytes and has `deferred` from before; `None` where there is
    /// nothing to free. `seeks` 0 means that objects cost nothing to make again: half of them go. No more than `most` is
    /// scanned, and nothing is deferred for what lies above that.
    pub(crate) fn new(freeable: usize, deferred: usize, priority: u32, seeks: u32, most: usize) -> Option<Self> {
        if freeable == 0 {
            return None;
        }
        let shifted = |bytes: usize| bytes.checked_shr(priority).unwrap_or(0);
        let delta = match seeks {
            0 => freeable / 2,
            _ => shifted(freeable).saturating_mul(4) / seeks as usize,
        };
        let delta = delta.min(most);
        let total = shifted(deferred).saturating_add(delta).min(freeable.saturating_mul(2)).min(most);
        Some(Self { freeable, deferred, delta, total })
    }

    /// Bytes of the next batch, after `scanned` bytes; `None`: what is left is less than a batch, and less than all that
    /// the cache could free.
    pub(crate) fn batch(&self, scanned: usize, batch: usize) -> Option<usize> {
        let left = self.total.saturating_sub(scanned);
        (left > 0 && (left >= batch || left >= self.freeable)).then(|| left.min(batch.max(1)))
    }

    /// Bytes deferred after `scanned` bytes.
    pub(crate) fn left(&self, scanned: usize) -> usize {
        let left = self.deferred.saturating_add(self.delta).saturating_sub(scanned);
        left.min(self.freeable.saturating_mul(2))
    }
}

/// Work that a cache has not done yet, bytes.
#[derive(Debug, Default)]
pub struct Deferred(AtomicUsize);

impl Deferred {
    /// Nothing is deferred.
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Takes all of it, for one scan: two scans at once do not do the same work twice.
    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, AcqRel)
    }

    /// Gives back what was not done, beside what others gave back meanwhile.
    pub(crate) fn add(&self, bytes: usize) {
        // Bounded by what each scan gives back; a sum that would wrap around stays at the top.
        let _ = self.0.fetch_update(AcqRel, Acquire, |before| Some(before.saturating_add(bytes)));
    }

    /// How much there is.
    pub(crate) fn get(&self) -> usize {
        self.0.load(Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_scan_takes_a_part_by_priority_and_cost() {
        let total = |priority, seeks| Plan::new(4096 * MIB, 0, priority, seeks, usize::MAX).unwrap().total;
        assert_eq!(total(12, 4), MIB, "at a cost of 4 seeks: size >> priority");
        assert_eq!(total(12, DEFAULT_SEEKS), 2 * MIB);
        assert_eq!(total(12, 8), MIB / 2, "what costs more is scanned less");
        assert_eq!(total(10, 4), 4 * MIB);
        assert_eq!(total(1, DEFAULT_SEEKS), 4096 * MIB, "all of it");
    }

    #[test]
    fn no_more_is_scanned_than_is_wanted_and_the_rest_is_not_deferred() {
        let plan = Plan::new(4096 * MIB, 0, 1, DEFAULT_SEEKS, MIB).unwrap();
        assert_eq!((plan.total, plan.left(MIB), plan.left(MIB / 4)), (MIB, 0, MIB / 4 * 3));
        assert_eq!(Plan::new(4096 * MIB, 64 * MIB, 1, DEFAULT_SEEKS, MIB).unwrap().total, MIB);
    }

    #[test]
    fn what_costs_nothing_goes_by_half_at_any_priority() {
        assert_eq!(Plan::new(100, 0, 12, 0, usize::MAX).unwrap().delta, 50);
        assert_eq!(Plan::new(100, 0, 1, 0, usize::MAX).unwrap().delta, 50);
    }

    #[test]
    fn nothing_to_free_is_no_scan() {
        assert_eq!(Plan::new(0, 1000, 0, DEFAULT_SEEKS, usize::MAX), None);
    }

    #[test]
    fn deferred_work_counts_by_priority_too() {
        let plan = Plan::new(MIB, 2 * MIB, 4, 4, usize::MAX).unwrap();
        assert_eq!((plan.delta, plan.total), (MIB / 16, MIB / 16 + 2 * MIB / 16));
    }

    #[test]
    fn a_scan_takes_twice_what_there_is_at_most() {
        assert_eq!(Plan::new(MIB, usize::MAX, 0, 1, usize::MAX).unwrap().total, 2 * MIB);
        assert_eq!(
            Plan::new(usize::MAX, usize::MAX, 0, 1, usize::MAX).unwrap().total,
            usize::MAX,
            "nothing wraps around"
        );
    }

    #[test]
    fn batches_go_on_while_there_is_a_whole_one_or_all_of_the_cache() {
        let plan = Plan::new(1000, 0, 2, 4, usize::MAX).unwrap();
        assert_eq!(plan.total, 250);
        assert_eq!(plan.batch(0, 100), Some(100));
        assert_eq!(plan.batch(100, 100), Some(100));
        assert_eq!(plan.batch(200, 100), None, "50 bytes are less than a batch");
        assert_eq!(plan.batch(250, 1), None);
        let small = Plan::new(60, 0, 1, DEFAULT_SEEKS, usize::MAX).unwrap();
        assert_eq!(small.batch(0, 100), Some(60), "less than a batch, and all that there is");
        assert_eq!(small.batch(60, 100), None);
        assert_eq!(Plan::new(60, 0, 2, DEFAULT_SEEKS, usize::MAX).unwrap().batch(0, 100), None);
    }

    #[test]
    fn what_was_not_done_is_deferred_and_bounded() {
        let plan = Plan::new(1000, 300, 2, 4, usize::MAX).unwrap();
        assert_eq!(plan.left(0), 550);
        assert_eq!(plan.left(200), 350);
        assert_eq!(plan.left(5000), 0);
        assert_eq!(Plan::new(1000, 1_000_000, 2, 4, usize::MAX).unwrap().left(0), 2000);
    }

    #[test]
    fn work_that_is_always_refused_does_not_grow_beyond_twice_the_cache() {
        let deferred = Deferred::new();
        for _ in 0..10_000 {
            let plan = Plan::new(1000, deferred.take(), 1, DEFAULT_SEEKS, usize::MAX).unwrap();
            assert_eq!(deferred.get(), 0, "taken by exchange with zero");
            deferred.add(plan.left(0));
        }
        assert_eq!(deferred.get(), 2000);
    }

    #[test]
    fn what_two_scans_give_back_adds_up() {
        let deferred = Deferred::new();
        deferred.add(10);
        assert_eq!((deferred.take(), deferred.take()), (10, 0), "the second scan finds nothing");
        deferred.add(3);
        deferred.add(4);
        assert_eq!(deferred.get(), 7);
        deferred.add(usize::MAX);
        assert_eq!(deferred.get(), usize::MAX);
    }
}
