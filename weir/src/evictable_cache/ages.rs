//! How long entries live: the times that a cache gives them, and entries whose time is over.
//!
//! Times lie beside the policy's slots, in caches that have any. An entry whose time is over is no hit, and leaves as it is
//! found: by a look-up, by the few that each insertion looks at, by an eviction. One that is dirty stays until it is written back.

use core::time::Duration;
use weir_core::evict::lifetime::{FOR_EVER, Times};
use weir_linux::process::evictable_caches as process;

use super::closure::Closure;
use super::header::Content;
use super::hold::Victims;
use super::shard::State;
use super::shared::Shared;
use super::stats::Cause;

/// Entries at which each insertion looks: all of a shard, in as many insertions as it has an eighth of entries.
const SWEPT: u32 = 8;
/// Entries at which each eviction for pressure looks: some microseconds.
const SWEPT_FOR_PRESSURE: u32 = 1024;

/// How long an entry lives, as a cache's [`expire_after`](crate::EvictableCacheBuilder::expire_after) says. What is `None` is as
/// the cache has it for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiry {
    /// From its insertion on.
    pub live: Option<Duration>,
    /// Since it was used last.
    pub idle: Option<Duration>,
}

/// What says how long an entry lives.
pub type ExpireAfter<C> = dyn Fn(&<C as Content>::Key, &<C as Content>::Value) -> Expiry + Send + Sync;
/// What says what time it is, ns.
pub type Clock = dyn Fn() -> u64 + Send + Sync;

/// How long the entries of a cache live.
pub struct Ages<C: Content> {
    pub clock: Option<Closure<Clock>>,
    pub by_entry: Option<Closure<ExpireAfter<C>>>,
    /// ns, as the next one.
    pub live: u64,
    pub idle: u64,
}

/// A time in ns; one of centuries is for ever.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(FOR_EVER)
}

impl<C: Content> Ages<C> {
    /// For ever.
    pub const fn new() -> Self {
        Self { clock: None, by_entry: None, live: FOR_EVER, idle: FOR_EVER }
    }

    /// Whether entries have an end.
    pub fn are_there(&self) -> bool {
        self.live.min(self.idle) != FOR_EVER || self.by_entry.is_some()
    }

    /// What time it is. The program's code: to be called under no lock.
    pub fn now(&self) -> u64 {
        self.clock.as_ref().map_or_else(process::now, |clock| clock())
    }

    /// The times of an entry that is to be put in. The program's code as well.
    pub fn times_of(&self, key: &C::Key, value: &C::Value) -> Times {
        let own = self.by_entry.as_ref().map(|by| by(key, value)).unwrap_or_default();
        let or = |own: Option<Duration>, all: u64| own.map_or(all, nanoseconds);
        Times::new(self.now(), or(own.live, self.live), or(own.idle, self.idle))
    }
}

impl<C: Content> Shared<C> {
    /// What time it is, where entries have an end.
    pub fn time(&self) -> Option<u64> {
        self.ages.as_ref().map(Ages::now)
    }

    /// Takes the entry at a place of the index out, if its time is over.
    pub fn take_if_over(&self, state: &mut State, place: usize, now: u64) -> Option<Victims<'_, C>> {
        let storage = state.storage.as_ref()?;
        let entry = storage.at(place);
        if !storage.is_over(entry, now) {
            return None;
        }
        let mut victims = Victims::new(self, Cause::Expired);
        // SAFETY: in the index, under the lock.
        unsafe { self.take(state, entry, &mut victims) };
        Some(victims)
    }

    /// Looks at a few entries of a shard, in turn, and takes those out whose time is over.
    pub fn sweep_some(&self, home: usize) {
        if let Some(now) = self.time() {
            self.sweep(home, now, SWEPT);
        }
    }

    /// The same of more entries, of any shard; what those weighed that left.
    pub fn sweep_for_pressure(&self) -> usize {
        self.time().map_or(0, |now| self.sweep(self.next_turn(), now, SWEPT_FOR_PRESSURE).1)
    }

    /// Takes all entries out whose time is over; how many there were.
    pub fn sweep_all(&self) -> usize {
        let Some(now) = self.time() else { return 0 };
        (0..self.shards().len()).map(|home| self.sweep(home, now, u32::MAX).0).sum()
    }

    /// Looks at so many entries of a shard; the number and weight of those that left.
    fn sweep(&self, home: usize, now: u64, mut left: u32) -> (usize, usize) {
        let (mut count, mut weight) = (0, 0);
        loop {
            let mut victims = Victims::new(self, Cause::Expired);
            let mut state = self.shards()[home].lock();
            while !victims.is_full()
                && let Some(storage) = &mut state.storage
                && let Some(entry) = storage.next_over(now, &mut left)
            {
                // SAFETY: in the storage, under the lock.
                unsafe { self.take(&mut state, entry, &mut victims) };
            }
            drop(state);
            let is_done = !victims.is_full();
            (count, weight) = (count + victims.len(), weight + victims.weight());
            victims.tell_and_drop();
            if is_done {
                return (count, weight);
            }
        }
    }
}
