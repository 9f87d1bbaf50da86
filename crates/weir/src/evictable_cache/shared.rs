//! A cache: what its handle, its guards and reclaim share. It stays where it is, in a block of Weir's heap, until the
//! handle is dropped.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use weir_linux::process::evictable_caches::ForkNode;

use super::adapt::Adaptation;
use super::ages::Ages;
use super::closure::Closure;
use super::dirt::{Dirt, Writer};
use super::header::Content;
use super::place::Place;
use super::room::Room;
use super::seams::Registration;
use super::shard::Shard;
use super::stats::Cause;

/// What is told of evictions.
pub type Listener<C> = dyn Fn(&<C as Content>::Key, &<C as Content>::Value, Cause) + Send + Sync;
/// What weighs entries.
pub type Weigher<C> = dyn Fn(&<C as Content>::Key, &<C as Content>::Value) -> usize + Send + Sync;
/// How a cache is to be.
pub struct Options<C: Content> {
    pub name: [u8; 32],
    pub min: usize,
    pub max: usize,
    /// 0: by CPUs and size.
    pub shards: usize,
    pub place: Place,
    pub ages: Ages<C>,
    pub weigher: Option<Closure<Weigher<C>>>,
    pub listener: Option<Closure<Listener<C>>>,
    pub writer: Option<Closure<Writer>>,
}

impl<C: Content> Options<C> {
    /// On the heap, without a bound.
    pub const fn new() -> Self {
        Self {
            name: [0; 32],
            min: 0,
            max: usize::MAX,
            shards: 0,
            place: Place::Heap,
            ages: Ages::new(),
            weigher: None,
            listener: None,
            writer: None,
        }
    }
}

/// The cache.
pub struct Shared<C: Content> {
    pub fork: ForkNode,
    /// Written by the maker before it gives the cache out, and taken at its end; reclaim, which may call meanwhile, does not
    /// read it.
    pub registration: UnsafeCell<Option<Registration>>,
    pub name: [u8; 32],
    pub shards: NonNull<[Shard]>,
    /// Of hashes, so that colliding keys cannot be prepared.
    pub seed: u64,
    /// The shard in which the next eviction begins.
    pub turn: AtomicU32,
    pub place: Place,
    pub room: Room,
    pub adapt: Adaptation,
    /// `None`: entries have no end.
    pub ages: Option<Ages<C>>,
    pub write_back: Dirt,
    pub weigher: Option<Closure<Weigher<C>>>,
    pub listener: Option<Closure<Listener<C>>>,
    pub rejected: AtomicU64,
    /// Entries that were removed or replaced and are held still, and values that are being filled from C.
    pub outside: AtomicUsize,
    /// Evictions for pressure that are under way.
    pub scans: AtomicUsize,
}

// SAFETY: all state is atomic or behind locks; keys and values are `Send` and `Sync`, as all that makes a cache demands,
// since reclaim uses it from threads of Weir's.
unsafe impl<C: Content> Sync for Shared<C> {}

impl<C: Content> Shared<C> {
    /// The shards, a power of two of them.
    #[inline]
    pub fn shards(&self) -> &[Shard] {
        // SAFETY: made by `new`, and freed with the cache.
        unsafe { self.shards.as_ref() }
    }

    /// A key's hash from the program's function, with every bit dependent on every one (the finalizer of MurmurHash3).
    #[inline]
    pub fn spread(&self, hash: u64) -> u64 {
        let mut x = hash ^ self.seed;
        x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        x ^ (x >> 33)
    }

    /// The number of a key's shard: by bits that the shard's index uses for neither places nor tags.
    #[inline]
    pub fn home(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.shards.len() - 1)
    }

    /// Another shard each time.
    pub fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Relaxed) as usize & (self.shards.len() - 1)
    }

    /// Notes that a value was not taken; no lock is held.
    pub fn reject(&self, key: &C::Key, value: &C::Value) {
        self.rejected.fetch_add(1, Relaxed);
        self.tell(key, value, Cause::Rejected);
    }

    /// Tells the listener; no lock is held.
    pub fn tell(&self, key: &C::Key, value: &C::Value, cause: Cause) {
        if let Some(listener) = &self.listener {
            listener(key, value, cause);
        }
    }
}
