//! How much a cache holds, and may hold: it grows while memory is free.

use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, SeqCst},
};

use weir_core::base::zone_class::ZoneClass;

use crate::evictable_cache::entry::place::Place;
use crate::evictable_cache::host::{Zone, coarse_ns, hears_pressure, may_grow, may_grow_low32, thread};

/// The target grows by 1/16, but by at least 64 KiB and at most 16 MiB at a time. So the question whether memory is free is put
/// seldom.
const STEP_SHARE: usize = 16;
pub const LEAST_STEP: usize = 64 << 10;
const MOST_STEP: usize = 16 << 20;
/// The bound of a cache that was given none, where none says when memory is short, bytes.
const UNHEARD: usize = 256 << 20;
/// Threads whose insertions are told apart while memory is short. If there are more, two may count as one.
const INSERTERS: usize = 16;
/// How long a thread's last insertion has a part of the target for itself, ns (choice). One that inserts no more, or has ended,
/// would else keep memory that all lack.
const CLAIM_NS: u64 = 1_000_000_000;

/// The place of a thread among so many, which are a power of two.
pub fn place_of(thread: usize, places: usize) -> usize {
    // The top bits of Fibonacci hashing: numbers of threads are addresses, which differ in the middle.
    ((thread as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - places.ilog2())) as usize
}

/// How much is held, and how much may be. On cache lines of its own: insertions write it, and what lies beside it every look-up
/// reads.
#[derive(Debug)]
#[repr(align(64))]
pub struct Room {
    /// The weight of the entries, and of those about to be put in.
    pub bytes: AtomicUsize,
    /// The entries.
    pub entries: AtomicUsize,
    /// The weight that the cache keeps to, if its bound is not below ([`Self::goal`]). It rises while memory is free.
    pub target: AtomicUsize,
    /// The weight that the program allows; `usize::MAX`: it gave no bound ([`Self::most`]).
    pub max: AtomicUsize,
    /// The weight that the program wants left by pressure. It may be above the bound, which changes ([`Self::least`]).
    min: usize,
    /// An entry was evicted for another.
    pub has_replaced: AtomicBool,
    /// Pressure has lowered the target, and is not over.
    pub is_pressed: AtomicBool,
    /// The memory that entries take.
    place: Place,
    /// Keys and values own memory elsewhere, which is the heap's.
    owns_memory: bool,
    /// The zone that has room for entries, or for what they own, before the heap has, if there is one.
    zone: Option<&'static Zone>,
    /// The weight that each thread inserted last as memory was short, bytes, and when, ns.
    inserters: [(AtomicUsize, AtomicU64); INSERTERS],
}

impl Room {
    /// Nothing held.
    pub const fn new(
        (min, max): (usize, usize),
        (place, owns_memory): (Place, bool),
        zone: Option<&'static Zone>,
    ) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
            target: AtomicUsize::new(if min < max { min } else { max }),
            max: AtomicUsize::new(max),
            min,
            has_replaced: AtomicBool::new(false),
            is_pressed: AtomicBool::new(false),
            place,
            owns_memory,
            zone,
            inserters: [const { (AtomicUsize::new(0), AtomicU64::new(0)) }; INSERTERS],
        }
    }

    /// The weight that the cache never exceeds. Where it was given none and pressure is not heard, it has a bound. Both may change.
    #[inline]
    pub fn most(&self) -> usize {
        match self.max.load(Relaxed) {
            usize::MAX if !hears_pressure() => UNHEARD,
            max => max,
        }
    }

    /// The weight that the cache keeps to now.
    #[inline]
    pub fn goal(&self) -> usize {
        self.target.load(Relaxed).min(self.most())
    }

    /// Counts so many bytes as held, if the target has room for them.
    #[inline]
    pub fn take(&self, weight: usize) -> bool {
        let take = |bytes: usize| bytes.checked_add(weight).filter(|&sum| sum <= self.goal());
        self.bytes.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    /// The part of the target that pressure leaves: the least that the program asked for, and one entry of each thread that
    /// inserts. Without that a thread under pressure could keep nothing, not even what it is at work on.
    pub fn least(&self) -> usize {
        self.least_at(coarse_ns)
    }

    /// [`Self::least`] for threads that are none of libc's.
    pub fn least_at(&self, clock: impl Fn() -> u64) -> usize {
        let (mut now, mut inserted) = (None, 0usize);
        for (weight, at) in &self.inserters {
            let weight = weight.load(Relaxed);
            if weight > 0 && now.get_or_insert_with(&clock).saturating_sub(at.load(Relaxed)) < CLAIM_NS {
                inserted = inserted.saturating_add(weight);
            }
        }
        self.min.max(inserted).min(self.most())
    }

    /// Notes that the calling thread inserts so much as memory is short.
    pub fn note_inserter(&self, weight: usize) {
        let (last, at) = &self.inserters[place_of(thread(), INSERTERS)];
        at.store(coarse_ns(), Relaxed);
        last.store(weight, Relaxed);
    }

    /// Notes that the calling thread has inserted so much in the place of other entries, where pressure may take all that no
    /// thread is at work on.
    #[inline]
    pub fn note_inserter_if_pressed(&self, weight: usize) {
        if self.is_pressed.load(Relaxed) {
            self.note_inserter(weight);
        }
    }

    /// Memory is free again: no thread needs a part of the target for itself.
    pub fn forget_inserters(&self) {
        self.inserters.iter().for_each(|(weight, _)| weight.store(0, Relaxed));
    }

    /// Raises the target to have room for `wanted` bytes in all, if it may.
    ///
    /// The target is exchanged for the one that was looked at, so that an eviction meanwhile keeps it down. An eviction notes the
    /// pressure before it lowers the target (release). So who reads the lowered target (acquire) finds the pressure noted.
    pub fn grow(&self, wanted: usize) -> bool {
        loop {
            let (target, max) = (self.target.load(Acquire), self.most());
            if wanted > max {
                return false;
            }
            if wanted <= target {
                return true;
            }
            let least = self.least();
            if self.is_pressed.load(Relaxed) && wanted > least {
                return false;
            }
            let step = (target / STEP_SHARE).clamp(LEAST_STEP, MOST_STEP);
            let far = target.saturating_add(step).max(wanted).min(max);
            let goal = if wanted <= least { far.min(least) } else { far };
            if goal > least && !self.may_grow(goal - target) {
                return false;
            }
            if self.target.compare_exchange(target, goal, SeqCst, Relaxed).is_ok() {
                self.keep_to_max();
                return true;
            }
        }
    }

    /// Raises the target to `bytes`, or to the bound.
    pub fn raise(&self, bytes: usize) {
        self.target.fetch_max(bytes.min(self.most()), SeqCst);
        self.keep_to_max();
    }

    /// After the target was raised: the bound may have been lowered since it was read. `set_max` stores it, then lowers the target.
    /// Either the lowering comes after the raising, or the new bound is read here, as all four are in one order.
    fn keep_to_max(&self) {
        self.target.fetch_min(self.max.load(SeqCst), SeqCst);
    }

    /// Whether a zone of the cache's list has room for so many bytes more. What entries take in a zone alone is none of the heap's.
    fn may_grow(&self, bytes: usize) -> bool {
        let along_list = || self.zone.is_some_and(|zone| zone.has_room(bytes)) || may_grow(bytes);
        match self.place {
            Place::Zone(zone) if zone.class() != ZoneClass::Normal => {
                zone.has_room(bytes) && (self.zone.is_none() && !self.owns_memory || along_list())
            }
            Place::Low32 => may_grow_low32(bytes) && along_list(),
            _ => along_list(),
        }
    }

    /// Exchanges bytes that an eviction freed, and that are still counted, for `weight` bytes of the entry for which they went.
    /// Returns false where they are fewer, and there is no room for the rest.
    ///
    /// Until then no other thread can take them. So an insertion evicts about what it needs, and never more because others insert
    /// too. Where the target fell, what is held comes down by the difference.
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

    /// Gives bytes back. A forked child counts what is in its shards, and not what its thread was about to put in or to free as it
    /// forked. So what is given back may be more than is counted, and the count stays at 0.
    #[inline]
    pub fn give(&self, weight: usize) {
        if weight > 0 {
            let counted = self.bytes.fetch_sub(weight, Relaxed);
            if counted < weight {
                self.bytes.fetch_add(weight - counted, Relaxed);
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_forked_child_does_not_count_is_not_given_back() {
        let room = Room::new((0, 1 << 20), (Place::Heap, false), None);
        room.target.store(1 << 20, Relaxed);
        assert!(room.take(100));
        room.give(300);
        assert_eq!(room.bytes.load(Relaxed), 0);
        assert!(room.exchange(50, 20), "it frees more than is counted");
        assert_eq!(room.bytes.load(Relaxed), 0);
    }

    #[test]
    fn the_target_is_not_raised_above_the_bound() {
        let room = Room::new((0, 100), (Place::Heap, false), None);
        room.raise(500);
        assert_eq!(room.target.load(Relaxed), 100);
        room.raise(50);
        assert_eq!(room.target.load(Relaxed), 100);
    }
}
