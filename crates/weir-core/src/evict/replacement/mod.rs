//! The policy of one shard of a cache: which entry goes when the shard weighs more than its target.
//!
//! | file | what it is |
//! |---|---|
//! | [`slot`] | one entry's links, weight and hash; how often it was hit lately, as 2-bit counters |
//! | `fifo` | a queue of entries, linked by their numbers |
//! | `sketch` | how often each key was seen lately, as 4-bit counters |
//! | `ghost` | hashes of keys evicted lately |
//! | [`setting`] | the two ways to run the queues |
//! | [`favour`] | what weight is to hits, where entries weigh differently |
//! | [`queues`] | the small and the main queue, and the search for a victim |
//! | `shadow` | a miniature cache without values, which shows what one setting would do |
//! | [`duel`] | two shadows over a sample of the keys, which choose the setting |
//!
//! A new entry joins the small queue. A hit raises a counter of two bits and moves nothing. When the cache is above its target,
//! the oldest small entry either moves to the main queue or is evicted. The oldest main entry is evicted once its counter is
//! zero, and goes round again otherwise. While the target falls, five entries are drawn at random, and the one seen least falls
//! out. The page docs/design/evictable-caches.md says why, and what else was tried.
//!
//! The policy has two parts. [`Sightings`] is what a hit writes: hits need no lock. [`Policy`] is what insertion, removal and
//! eviction write, under the owner's lock.

pub mod duel;
pub mod favour;
mod fifo;
mod ghost;
pub mod queues;
pub mod setting;
mod shadow;
mod sketch;
pub mod slot;

use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU8, AtomicU64};
use queues::Queues;
use sketch::Sketch;
use slot::{Hits, Place, Slot};

/// The part that hits write: a hit count per entry, and a frequency per key. Shared by all threads.
#[derive(Debug)]
pub struct Sightings<'a> {
    slots: &'a [Slot],
    hits: Hits<'a>,
    sketch: Sketch<'a>,
}

impl<'a> Sightings<'a> {
    /// Over a slot and a count of hits for each entry number, and `sketch`, all zeros. For `sketch` 2 to 4 words per entry are
    /// best, and at least 8.
    pub const fn new(slots: &'a [Slot], hits: &'a [AtomicU8], sketch: &'a [AtomicU64]) -> Self {
        Self { slots, hits: Hits::new(hits), sketch: Sketch::new(sketch) }
    }

    /// Notes that `entry`, of a key of `hash`, was used. Takes no lock; may come while the entry is evicted, and then counts
    /// for nothing.
    #[inline]
    pub fn hit(&self, entry: u32, hash: u32) {
        self.hits.hit(entry);
        self.sketch.count(hash);
    }

    /// Fetches what a hit of a key of `hash` is about to write.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        self.sketch.prefetch(hash);
    }

    /// The mixed hash of `entry`'s key: also of one that was evicted and whose number was not used since.
    #[inline]
    pub fn hash_of(&self, entry: u32) -> u32 {
        self.slots[entry as usize].hash()
    }
}

/// The order of eviction of one shard: its queues, and what hits write.
#[derive(Debug)]
pub struct Policy<'a> {
    queues: Queues<'a>,
    sightings: &'a Sightings<'a>,
}

impl<'a> Deref for Policy<'a> {
    type Target = Queues<'a>;
    fn deref(&self) -> &Queues<'a> {
        &self.queues
    }
}

impl<'a> DerefMut for Policy<'a> {
    fn deref_mut(&mut self) -> &mut Queues<'a> {
        &mut self.queues
    }
}

impl<'a> Policy<'a> {
    /// An empty shard with a target of 0 bytes. `ghost`: best 1 to 2 places per entry, at least 8, all zeros.
    pub fn new(sightings: &'a Sightings<'a>, ghost: &'a mut [u32]) -> Self {
        Self { queues: Queues::new(sightings.slots, sightings.hits, ghost), sightings }
    }

    /// Adds `entry`, a number not in use, for a key of `hash`, of which every bit depends on the whole key (see
    /// [`mix`](super::mix)). True if the key was evicted lately: a cache of nearly twice the size would have had it still. The
    /// caller evicts afterwards.
    ///
    /// # Panics
    /// If the number is in use, or has no slot.
    pub fn insert(&mut self, entry: u32, hash: u32, weight: usize) -> bool {
        assert_eq!(self.queues.slots()[entry as usize].place(), Place::Nowhere, "entry {entry} is in use");
        let was_evicted_lately = self.queues.insert(entry, hash, weight);
        self.sightings.sketch.fit(self.queues.len());
        self.sightings.sketch.count(hash);
        was_evicted_lately
    }

    /// Takes out one entry and returns it, while the shard weighs more than its target; the caller calls again until
    /// there is none. Entries for which `is_pinned` holds are skipped and keep their place in the order.
    ///
    /// A call looks at each pinned entry at most once, and at an entry hit lately at most as often as it was hit.
    pub fn evict(&mut self, is_pinned: impl FnMut(u32) -> bool) -> Option<u32> {
        self.evict_for(0, is_pinned)
    }

    /// [`Policy::evict`], so that `incoming` bytes more find room.
    pub fn evict_for(&mut self, incoming: usize, is_pinned: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.weight().saturating_add(incoming) <= self.target() {
            return None;
        }
        self.queues.evict(&self.sightings.sketch, incoming, is_pinned)
    }

    /// [`Policy::evict_for`] whatever the target: `None` only if every entry is pinned.
    pub fn evict_any(&mut self, incoming: usize, is_pinned: impl FnMut(u32) -> bool) -> Option<u32> {
        self.queues.evict(&self.sightings.sketch, incoming, is_pinned)
    }

    /// Notes that `entry` was used, as [`Sightings::hit`] does.
    #[inline]
    pub fn hit(&self, entry: u32, hash: u32) {
        self.sightings.hit(entry, hash);
    }

    /// Fetches what a use of a key of `hash` is about to read and write.
    #[inline]
    pub fn prefetch(&self, hash: u32) {
        self.sightings.prefetch(hash);
    }

    /// Whether `entry` is the number of an entry in the shard.
    pub fn has(&self, entry: u32) -> bool {
        self.queues.slots()[entry as usize].place() != Place::Nowhere
    }

    /// How much the cache gains by `entry`, which is in the shard, to be compared with others'. That is how often its key was
    /// seen lately, then how often it was hit.
    pub fn worth(&self, entry: u32) -> (u64, u8) {
        self.queues.worth(entry, &self.sightings.sketch)
    }

    /// Notes `next` at a number that is not in use, where the entry's links would be. So an owner can chain such numbers.
    pub fn chain(&self, entry: u32, next: u32) {
        self.queues.slots()[entry as usize].set_next(next);
    }

    /// What [`Policy::chain`] noted at a number that was not in use since.
    pub fn chained(&self, entry: u32) -> u32 {
        self.queues.slots()[entry as usize].next()
    }

    /// What hits write.
    pub const fn sightings(&self) -> &'a Sightings<'a> {
        self.sightings
    }

    /// Takes over all of `other` into this empty policy, which has as many slots or more: every entry keeps its number.
    pub fn grow_from(&mut self, other: &Policy<'_>) {
        self.queues.grow_from(&other.queues);
        self.sightings.sketch.take_over(&other.sightings.sketch);
    }

    /// Takes over all of `other` into this empty policy, whose storage may be smaller. The entries get the numbers from 0
    /// on, in the order of [`Queues::iter`]; `renumbered` is told each one's number there and here.
    ///
    /// # Panics
    /// If there are fewer slots here than `other` has entries.
    pub fn take_over(&mut self, other: &Policy<'_>, renumbered: impl FnMut(u32, u32)) {
        self.queues.take_over(&other.queues, renumbered);
        self.sightings.sketch.take_over(&other.sightings.sketch);
    }

    /// Whether an entry of a key that is not there, for which others would have to go, had better not come in: it is heavy, and was
    /// seen too seldom for that. This counts as a sighting of the key, so that what is wanted often comes in.
    pub fn refuses(&mut self, hash: u32, weight: usize) -> bool {
        let is_refused = self.queues.refuses(hash, weight, &self.sightings.sketch);
        if is_refused {
            self.sightings.sketch.count(hash);
        }
        is_refused
    }
}
