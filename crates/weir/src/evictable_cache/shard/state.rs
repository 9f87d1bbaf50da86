//! A shard: a part of the entries, chosen by hash, behind a lock of its own.

use core::ptr::NonNull;
use weir_core::base::time::Time;
use weir_core::evict::landings::Landings;
use weir_core::platform::lock::{Guard, Lock, RankTurn, holds};
use weir_core::platform::rank::EVICTABLE_SHARD;

use super::storage::Storage;
use crate::evictable_cache::entry::header::{Content, Header};
use crate::evictable_cache::host::{System, system};
use crate::evictable_cache::load::flight::Flights;
use crate::evictable_cache::load::table::{Buckets, Linked, Table};
use crate::evictable_cache::load::waiters::Waiters;

/// Counts since the cache was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub hits: u64,
    pub misses: u64,
    pub insertions: u64,
    pub for_room: u64,
    pub for_pressure: u64,
    pub removed: u64,
    pub expired: u64,
    pub replaced: u64,
    /// Insertions of keys that had been evicted lately.
    pub returned: u64,
}

impl Counts {
    /// Those that are told to other processes.
    #[cfg(not(plain))]
    pub fn told(&self) -> [u64; 5] {
        [self.hits, self.misses, self.insertions, self.for_room, self.for_pressure]
    }

    /// Adds another shard's.
    pub fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.insertions += other.insertions;
        self.for_room += other.for_room;
        self.for_pressure += other.for_pressure;
        self.removed += other.removed;
        self.expired += other.expired;
        self.replaced += other.replaced;
        self.returned += other.returned;
    }
}

/// The state that the lock guards.
pub struct State {
    /// `None`: nothing was ever inserted, or all of it is gone.
    pub storage: Option<Storage>,
    /// Values that are being computed.
    pub flights: Flights,
    /// Walks that are in the shard: its entries keep their numbers.
    pub walks: u32,
    pub counts: Counts,
    /// Tasks that wait for values that are being computed.
    pub waiters: Waiters,
}

// SAFETY: entries and flights are reached through the state under its lock; what they hold may be sent (the cache's own
// bounds).
unsafe impl Send for State {}

/// The shard.
#[repr(align(64))]
pub struct Shard {
    state: Lock<State, EVICTABLE_SHARD>,
    /// The flights that ended for which others waited.
    pub landings: Landings,
}

/// Holds a shard's lock.
pub type ShardGuard<'a> = Guard<'a, State, System, EVICTABLE_SHARD>;

impl Shard {
    /// An empty one.
    pub fn new() -> Self {
        let (flights, waiters) = (Flights::new(), Waiters::new());
        let state = State { storage: None, flights, walks: 0, counts: Counts::default(), waiters };
        Self { state: Lock::new(state), landings: Landings::new() }
    }

    /// Takes the lock.
    ///
    /// # Panics
    /// In debug builds, if the thread has a shard's lock: it compares keys.
    #[inline]
    pub fn lock(&self) -> ShardGuard<'_> {
        debug_assert!(
            !holds(system(), EVICTABLE_SHARD),
            "`Eq` of a key uses an evictable cache, under whose lock it is called"
        );
        self.state.lock(system())
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<ShardGuard<'_>> {
        self.state.try_lock(system())
    }

    /// Has so many buckets in a table of the state, as far as there is memory. No lock is held: the memory may be that of entries
    /// that are evicted for it.
    #[cold]
    pub fn spread<T: Linked>(&self, count: usize, table: fn(&mut State) -> &mut Table<T>) {
        let former = Buckets::new(count).and_then(|other| table(&mut self.lock()).spread(other));
        drop(former);
    }

    /// Passes its lock to the turn of a rank, for `fork`.
    pub fn freeze(&self, turn: &RankTurn<'_, System>) {
        turn.lock(&self.state);
    }
}

/// The outcome of a look-up.
pub enum Found {
    /// The entry, which counts as used.
    Entry(NonNull<Header>),
    /// An entry whose time is over, at this place of the index.
    Over(usize),
    Nothing,
}

impl State {
    /// Whether a smaller storage is due, and no walk keeps the one that is there.
    pub fn is_outgrown(&self) -> bool {
        self.walks == 0 && self.storage.as_ref().is_some_and(Storage::is_outgrown)
    }

    /// The place of a key in the index. The key is compared under the lock.
    #[inline]
    pub fn find<C: Content>(&self, hash: u32, mut is_it: impl FnMut(&C::Key) -> bool) -> Option<usize> {
        let storage = self.storage.as_ref()?;
        // SAFETY: what is in the index is an entry of the cache, with its key, as long as the lock is held.
        storage.find(hash, |entry| is_it(unsafe { C::key(entry) }))
    }

    /// Outdates the flights of keys that have no entry. An update of an entry is not among them.
    pub fn outdate_loads<C: Content>(&self) {
        self.flights.outdate_if(|flight| {
            // SAFETY: the block of a linked flight has its key, under the lock.
            let key = unsafe { C::key(flight.entry) };
            self.find::<C>(flight.hash(), |other| C::is_same(other, key)).is_none()
        });
    }

    /// Looks a key up, which is a use of its entry; `now` is what time it is, where entries have an end.
    ///
    /// The use is noted under the lock: the lock is needed for what is taken anyway, and the storage that notes may move.
    /// Inlined in each caller, so that one without times pays for none. The caller counts the hit or the miss, once a call.
    #[inline(always)]
    pub fn look_up<C: Content>(
        &mut self,
        hash: u32,
        mut is_it: impl FnMut(&C::Key) -> bool,
        now: Option<Time>,
    ) -> Found {
        let Some(storage) = &mut self.storage else { return Found::Nothing };
        storage.prefetch(hash);
        // SAFETY: what is in the index is an entry of the cache, with its key, as long as the lock is held.
        let place = storage.find(hash, |entry| is_it(unsafe { C::key(entry) }));
        let Some(place) = place else { return Found::Nothing };
        let entry = storage.at(place);
        // SAFETY: in the index, under the lock: the cache holds it.
        let header = unsafe { entry.as_ref() };
        if let Some(now) = now {
            if storage.is_over(header, now) {
                return Found::Over(place);
            }
            storage.use_at(header, now);
        }
        storage.hit(header);
        Found::Entry(entry)
    }
}
