//! A cache: what its handle, its guards and reclaim share. It stays where it is, in a block of Weir's heap, until the
//! handle is dropped.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use weir_core::base::time::Time;
use weir_core::evict::mix;
use weir_core::telemetry::name::Name;

use super::api::stats::RemovalCause;
use super::closure::Closure;
use super::entry::header::Content;
use super::entry::place::Place;
use super::eviction::choice::Choice;
use super::eviction::expiry::Ages;
use super::eviction::room::Room;
#[cfg(not(plain))]
use super::eviction::rounds::Gathering;
use super::eviction::scans::Scans;
use super::host::Membership;
use super::options::{Listener, Weigher};
use super::parts::Zoned;
use super::shard::state::Shard;
use super::worth::Worth;

/// The cache.
pub struct Shared<C: Content> {
    pub membership: Membership,
    pub name: Name,
    pub shards: NonNull<[Shard]>,
    /// The seed of hashes, so that colliding keys cannot be prepared.
    pub seed: u64,
    /// The shard in which the next eviction begins.
    pub turn: AtomicU32,
    pub place: Place,
    pub zoned: Zoned<C>,
    pub room: Room,
    pub choice: Choice,
    /// `None`: entries have no end.
    pub ages: Option<Ages<C>>,
    pub weigher: Option<Closure<Weigher<C>>>,
    /// Entries own memory that nothing weighs: the bound stays one.
    pub needs_bound: bool,
    pub listener: Option<Closure<Listener<C>>>,
    pub rejected: AtomicU64,
    /// Entries that were removed or replaced and are held still, and values that are being filled from C.
    pub outside: AtomicUsize,
    /// Evictions for pressure that are under way.
    pub scans: Scans,
    /// Calls of the program's that are in the listener, and go on with the cache after it.
    pub calls: Scans,
    /// How what is left after evictions comes together.
    #[cfg(not(plain))]
    pub gathering: Gathering,
    /// What its hits are worth.
    pub worth: Worth,
    /// What was counted before the process's last fork: hits, misses, insertions, evictions for room and for pressure.
    #[cfg(not(plain))]
    pub parents: [AtomicU64; 5],
}

// SAFETY: all state is atomic or behind locks. Keys and values are `Send` and `Sync`, as all that makes a cache demands,
// since reclaim uses them from threads of Weir's.
unsafe impl<C: Content> Sync for Shared<C> {}

impl<C: Content> Shared<C> {
    /// The shards, a power of two of them.
    #[inline]
    pub fn shards(&self) -> &[Shard] {
        // SAFETY: made by `new`, and freed with the cache.
        unsafe { self.shards.as_ref() }
    }

    /// A key's hash from the program's function, with every bit dependent on every one.
    #[inline]
    pub fn spread(&self, hash: u64) -> u32 {
        mix(hash, self.seed)
    }

    /// The number of a key's shard: by the upper bits of its hash, of which the shard's index and policy use others as far as there
    /// are.
    #[inline]
    pub fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.shards.len() as u64) >> u32::BITS) as usize
    }

    /// Another shard each time.
    pub fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Relaxed) as usize & (self.shards.len() - 1)
    }

    /// The time, ns, where entries have an end.
    #[inline]
    pub fn time(&self) -> Option<Time> {
        self.ages.as_ref().map(Ages::now)
    }

    /// Notes that a value was not taken; no lock is held.
    pub fn reject(&self, key: &C::Key, value: &C::Value) {
        self.rejected.fetch_add(1, Relaxed);
        self.tell(key, value, RemovalCause::Rejected);
    }

    /// Tells the listener; no lock is held.
    pub fn tell(&self, key: &C::Key, value: &C::Value, cause: RemovalCause) {
        if let Some(listener) = &self.listener {
            let _call = (cause != RemovalCause::Pressure).then(|| self.calls.begin());
            listener(key, value, cause);
        }
    }
}
