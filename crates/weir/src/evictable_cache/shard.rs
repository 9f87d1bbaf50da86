//! A shard: a part of the entries, chosen by hash, behind a lock of its own.

use core::ptr::NonNull;
use weir_core::evict::landings::Landings;
use weir_linux::process::evictable_caches::{self as process, CacheGuard, CacheLock, EVICTABLE_SHARD};

use super::flight::Flight;
use super::header::{Content, Header};
use super::list::List;
use super::storage::Storage;

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
}

/// What the lock guards.
pub struct State {
    /// `None`: nothing was ever inserted, or all of it is gone.
    pub storage: Option<Storage>,
    /// Values that are being computed.
    pub flights: Option<NonNull<Flight>>,
    /// Entries to be written back, in the order in which they got dirty.
    pub dirty: List,
    /// Entries that are being written back.
    pub writing: List,
    /// A thread waits until one of those ends.
    pub is_write_back_awaited: bool,
    /// Walks that are in the shard: its entries keep their numbers.
    pub walks: u32,
    pub counts: Counts,
}

// SAFETY: entries and flights are reached through the state under its lock; what they hold may be sent (the cache's own
// bounds).
unsafe impl Send for State {}

/// The shard.
#[repr(align(64))]
pub struct Shard {
    state: CacheLock<State, EVICTABLE_SHARD>,
    /// The flights and write-backs that ended for which others waited.
    pub landings: Landings,
}

/// Holds a shard's lock.
pub type Guard<'a> = CacheGuard<'a, State, EVICTABLE_SHARD>;

impl Shard {
    /// An empty one.
    pub const fn new() -> Self {
        let state = State {
            storage: None,
            flights: None,
            dirty: List::new(),
            writing: List::new(),
            is_write_back_awaited: false,
            walks: 0,
            counts: Counts {
                hits: 0,
                misses: 0,
                insertions: 0,
                for_room: 0,
                for_pressure: 0,
                removed: 0,
                expired: 0,
                replaced: 0,
            },
        };
        Self { state: CacheLock::new(state), landings: Landings::new() }
    }

    /// Takes the lock.
    ///
    /// # Panics
    /// In debug builds, if the thread has a shard's lock: it compares keys.
    #[inline]
    pub fn lock(&self) -> Guard<'_> {
        debug_assert!(!process::holds_shard(), "`Eq` of a key uses an evictable cache, under whose lock it is called");
        self.state.lock(process::platform())
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        self.state.try_lock(process::platform())
    }

    /// Takes it without a guard, for `fork`.
    pub fn freeze(&self) {
        self.state.acquire(process::platform());
    }

    /// Gives it back.
    ///
    /// # Safety
    /// Follows [`Shard::freeze`].
    pub unsafe fn thaw(&self) {
        // SAFETY: the caller froze it, without a guard.
        unsafe { self.state.release(process::platform()) }
    }
}

impl State {
    /// The place of a key in the index. The key is compared under the lock.
    #[inline]
    pub fn find<C: Content>(&self, hash: u64, mut is_it: impl FnMut(&C::Key) -> bool) -> Option<usize> {
        let storage = self.storage.as_ref()?;
        // SAFETY: what is in the index is an entry of the cache, with its key, as long as the lock is held.
        storage.find(hash, |entry| is_it(unsafe { C::key(entry) }))
    }

    /// The entry at a place.
    #[inline]
    pub fn at(&self, place: usize) -> Option<NonNull<Header>> {
        Some(self.storage.as_ref()?.at(place))
    }
}
