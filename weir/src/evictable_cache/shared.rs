//! A cache: what its handle, its guards and reclaim share. It stays where it is, in a block of Weir's heap, until the
//! handle is dropped.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use weir_linux::process::evictable_caches::{self as process, ForkCalls, ForkNode};

use super::adapt::Adaptation;
use super::closure::Closure;
use super::flight::{self, Flight};
use super::fresh::{Fresh, Landing};
use super::header::{Content, Header};
use super::hold::{Hold, Victims};
use super::place::Place;
use super::room::Room;
use super::seams::{self, Registration, Shrink};
use super::shard::{Shard, State};
use super::stats::{Cause, EvictableStats};
use super::storage::Storage;
use super::write_back::{Batch, WriteBack};
use crate::heap;
use crate::object_cache::CacheError;

/// What is told of evictions.
pub type Listener<C> = dyn Fn(&<C as Content>::Key, &<C as Content>::Value, Cause) + Send + Sync;
/// What weighs entries.
pub type Weigher<C> = dyn Fn(&<C as Content>::Key, &<C as Content>::Value) -> usize + Send + Sync;
/// What writes entries back.
pub type Writer<C> = dyn Fn(Batch<C>) + Send + Sync;

/// Shards for each CPU, where the cache is large enough: two threads seldom meet at one then.
const SHARDS_PER_CPU: usize = 4;
/// Bytes of a shard of the default number of them, at least: small parts evict worse than one whole.
const SHARD_BYTES: usize = 1 << 20;
/// The most shards there can be.
const MOST_SHARDS: usize = 1024;
/// A shard's storage is made smaller when less than this part of it is in use.
const SPARE: usize = 4;

/// How a cache is to be.
pub struct Options<C: Content> {
    pub name: [u8; 32],
    pub min: usize,
    pub max: usize,
    /// 0: by CPUs and size.
    pub shards: usize,
    pub place: Place,
    pub weigher: Option<Closure<Weigher<C>>>,
    pub listener: Option<Closure<Listener<C>>>,
    pub writer: Option<Closure<Writer<C>>>,
}

/// The cache.
pub struct Shared<C: Content> {
    fork: ForkNode,
    registration: Option<Registration>,
    pub name: [u8; 32],
    shards: NonNull<[Shard]>,
    /// Of hashes, so that colliding keys cannot be prepared.
    seed: u64,
    /// The shard in which the next eviction begins.
    turn: AtomicU32,
    pub place: Place,
    pub room: Room,
    pub adapt: Adaptation,
    pub write_back: WriteBack<C>,
    pub weigher: Option<Closure<Weigher<C>>>,
    listener: Option<Closure<Listener<C>>>,
    pub rejected: AtomicU64,
}

// SAFETY: all state is atomic or behind locks; keys and values are `Send` and `Sync`, as all that makes a cache demands,
// since reclaim uses it from threads of Weir's.
unsafe impl<C: Content> Sync for Shared<C> {}

impl<C: Content> Shared<C> {
    /// Makes one.
    pub fn new(options: Options<C>) -> Result<NonNull<Self>, CacheError> {
        let most = (SHARDS_PER_CPU * process::cpus()).next_power_of_two().min(MOST_SHARDS);
        let count = match options.shards {
            0 => (options.max / SHARD_BYTES).clamp(1, most),
            count => count.next_power_of_two().min(MOST_SHARDS),
        };
        // Down to a power of two.
        let count = 1 << count.ilog2();
        let home = NonNull::new(heap::alloc_aligned(align_of::<Self>().max(64), size_of::<Self>()));
        let shards = NonNull::new(heap::alloc_aligned(align_of::<Shard>(), count * size_of::<Shard>()));
        let (Some(home), Some(shards)) = (home, shards) else {
            for block in [home, shards].into_iter().flatten() {
                // SAFETY: a block of this function's.
                unsafe { heap::free(block.as_ptr()) };
            }
            return Err(CacheError::OutOfMemory);
        };
        let (home, shards) = (home.cast::<Self>(), shards.cast::<Shard>());
        for at in 0..count {
            // SAFETY: in the block, and large enough.
            unsafe { shards.add(at).write(Shard::new()) };
        }
        let [seed, seed_of_duel] = process::random();
        let Options { name, min, max, place, weigher, listener, writer, .. } = options;
        // SAFETY: fresh, and of that layout.
        unsafe {
            home.write(Self {
                fork: ForkNode::new(
                    &const { ForkCalls { freeze: freeze::<C>, thaw: thaw::<C>, inherit: inherit::<C> } },
                ),
                registration: None,
                name,
                shards: NonNull::slice_from_raw_parts(shards, count),
                seed: seed as u64,
                turn: AtomicU32::new(0),
                place,
                room: Room::new(min.min(max), max),
                adapt: Adaptation::new(seed_of_duel as u64),
                write_back: WriteBack::new(writer),
                weigher,
                listener,
                rejected: AtomicU64::new(0),
            });
        }
        // SAFETY: the cache stays where it is until `destroy` ends both; the node is its first field in use by `fork`.
        unsafe {
            process::add(NonNull::from(&home.as_ref().fork));
            (*home.as_ptr()).registration = seams::register(home.as_ref());
        }
        // SAFETY: made above.
        if unsafe { home.as_ref() }.registration.is_none() {
            // SAFETY: nothing refers to it yet.
            unsafe { Self::destroy(home) };
            return Err(CacheError::OutOfMemory);
        }
        Ok(home)
    }

    /// Ends a cache: writes back what is dirty, drops what is there. Entries that are still held (by guards that were
    /// forgotten) stay.
    ///
    /// # Safety
    /// Nothing uses the cache any more.
    pub unsafe fn destroy(this: NonNull<Self>) {
        // SAFETY: valid until the end of this function; reclaim may still use it.
        let shared = unsafe { this.as_ref() };
        // SAFETY: the registration is this function's: nothing else reads it after `new`.
        drop(unsafe { (*this.as_ptr()).registration.take() });
        shared.clear();
        // SAFETY: `new` added it.
        unsafe { process::remove(NonNull::from(&shared.fork)) };
        let shards = shared.shards;
        // SAFETY: nothing refers to the cache any more; both blocks are `new`'s.
        unsafe {
            shards.drop_in_place();
            heap::free(shards.as_ptr().cast());
            this.drop_in_place();
            heap::free(this.as_ptr().cast());
        }
    }

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

    /// Tells the listener; no lock is held.
    pub fn tell(&self, key: &C::Key, value: &C::Value, cause: Cause) {
        if let Some(listener) = &self.listener {
            listener(key, value, cause);
        }
    }

    /// Drops what an entry has, and frees its block.
    ///
    /// # Safety
    /// The last hold of it was given up.
    #[inline]
    pub unsafe fn free_entry(&self, entry: NonNull<Header>) {
        // SAFETY: the caller is its only owner; it was in the cache, so it has its value.
        let mut fresh = unsafe { Fresh::new(self, entry) };
        fresh.has_value = true;
    }

    /// A key's entry, held; that counts as a use.
    #[inline]
    pub fn get(&self, hash: u64, is_it: impl FnMut(&C::Key) -> bool) -> Option<Hold<'_, C>> {
        let mut state = self.shards()[self.home(hash)].lock();
        let Some(place) = state.find::<C>(hash, is_it) else {
            state.counts.misses += 1;
            return None;
        };
        let hold = self.hit(&mut state, place);
        drop(state);
        if hold.is_some() && self.adapt.is_sampled(hash) {
            self.note_sampled(hash, hold.as_ref().map_or(0, |hold| hold.header().weight));
        }
        hold
    }

    /// Holds the entry at a place, and counts a hit.
    ///
    /// The hit is counted under the lock: it is needed for the hold anyway, and the storage that counts may move.
    #[inline]
    fn hit(&self, state: &mut State, place: usize) -> Option<Hold<'_, C>> {
        state.counts.hits += 1;
        let storage = state.storage.as_ref()?;
        let entry = NonNull::new(storage.index.get(place) as *mut Header)?;
        // SAFETY: in the index, under the lock: the cache holds it.
        let header = unsafe { entry.as_ref() };
        header.pins.pin();
        storage.policy.hit(header.number.get());
        Some(Hold { shared: self, entry })
    }

    /// Whether a key is there; that counts as nothing.
    pub fn contains(&self, hash: u64, is_it: impl FnMut(&C::Key) -> bool) -> bool {
        self.shards()[self.home(hash)].lock().find::<C>(hash, is_it).is_some()
    }

    /// The entry of `fresh`'s key, or `fresh` with what `compute` puts in as its value. Who wants the same key meanwhile
    /// waits.
    ///
    /// # Panics
    /// If the closure wants the key itself.
    pub fn get_or_compute<'a, E>(
        &'a self,
        mut fresh: Fresh<'a, C>,
        compute: impl FnOnce(&mut Fresh<'a, C>) -> Result<(), E>,
    ) -> Result<Result<Hold<'a, C>, (Fresh<'a, C>, super::errors::Refusal)>, E> {
        let hash = fresh.hash();
        let shard = &self.shards()[self.home(hash)];
        let flight = Flight::new(hash, fresh.entry);
        loop {
            let mut state = shard.lock();
            if let Some(place) = state.find::<C>(hash, |key| C::is_same(key, fresh.key()))
                && let Some(hold) = self.hit(&mut state, place)
            {
                return Ok(Ok(hold));
            }
            let Some(other) = state.flight_of::<C>(hash, |key| C::is_same(key, fresh.key())) else {
                // SAFETY: the flight and `fresh` with its key stay until `landing` is dropped, or has landed.
                unsafe { state.take_off(&flight) };
                break;
            };
            // SAFETY: found under this lock.
            unsafe { flight::wait(shard, state, other) };
        }
        // Declared after `fresh`, so dropped before it: the key outlives the flight.
        let mut landing = Landing::new(shard, &flight);
        compute(&mut fresh)?;
        fresh.has_value = true;
        Ok(fresh.put(Some(&mut landing)))
    }

    /// Takes a key's entry out. One that is dirty is written back first; false also where that fails.
    pub fn remove(&self, hash: u64, mut is_it: impl FnMut(&C::Key) -> bool, is_kept_if_dirty: bool) -> bool {
        let home = self.home(hash);
        loop {
            let mut guard = self.shards()[home].lock();
            let state = &mut *guard;
            let Some(entry) = state.find::<C>(hash, &mut is_it).and_then(|place| state.at(place)) else { return false };
            // SAFETY: in the index, under the lock.
            let header = unsafe { entry.as_ref() };
            if is_kept_if_dirty && (header.is_dirty() || header.is_writing()) {
                header.pins.pin();
                drop(guard);
                if !self.write_one_back(&Hold { shared: self, entry }) {
                    return false;
                }
                continue;
            }
            let mut victims = Victims::new(self, Cause::Removed);
            self.take(state, entry, &mut victims);
            drop(guard);
            victims.tell_and_drop();
            self.fit_shard(home);
            return true;
        }
    }

    fn take(&self, state: &mut State, entry: NonNull<Header>, victims: &mut Victims<'_, C>) {
        self.forget_dirt(state, entry);
        if let Some(storage) = &mut state.storage {
            storage.take(entry);
        }
        state.counts.removed += 1;
        let before = victims.weight();
        victims.push(entry);
        self.count_out(1, victims.weight() - before);
    }

    /// Writes back what is dirty, and takes all entries out.
    pub fn clear(&self) {
        let _ = self.flush();
        for shard in self.shards() {
            loop {
                let mut victims = Victims::new(self, Cause::Removed);
                let mut state = shard.lock();
                while let Some(storage) = &state.storage
                    && !victims.is_full()
                    && let Some(number) = storage.policy.iter().next()
                {
                    let entry = storage.entry(number);
                    self.take(&mut state, entry, &mut victims);
                }
                drop(state);
                if victims.is_empty() {
                    break;
                }
                victims.tell_and_drop();
            }
        }
        self.fit_storage();
    }

    /// Makes room for one entry more in a shard; `false`: there is no memory.
    pub fn enlarge_storage(&self, home: usize) -> bool {
        let shard = &self.shards()[home];
        let capacity = shard.lock().storage.as_ref().map_or(0, Storage::capacity);
        let size = capacity.max(16) * 72;
        let Some(larger) = self.with_memory(home, size, || Storage::new(capacity + 1, self.seed)) else { return false };
        let mut state = shard.lock();
        let is_due = state.storage.as_ref().is_none_or(|now| now.len() == now.capacity());
        let old = if is_due && larger.capacity() > state.storage.as_ref().map_or(0, Storage::len) {
            exchange(&mut state, larger)
        } else {
            Some(larger)
        };
        drop(state);
        drop(old);
        true
    }

    /// Makes the storage of shards smaller that have few entries left.
    pub fn fit_storage(&self) {
        (0..self.shards().len()).for_each(|at| self.fit_shard(at));
        if self.room.entries.load(Relaxed) == 0 {
            self.adapt.stop();
        }
    }

    fn fit_shard(&self, at: usize) {
        let shard = &self.shards()[at];
        let state = shard.lock();
        let (len, capacity) = state.storage.as_ref().map_or((0, 0), |now| (now.len(), now.capacity()));
        drop(state);
        if len > capacity / SPARE || capacity == 0 {
            return;
        }
        let smaller = if len == 0 { None } else { Storage::new(2 * len, self.seed) };
        if len > 0 && smaller.as_ref().is_none_or(|smaller| smaller.capacity() >= capacity) {
            return;
        }
        let mut state = shard.lock();
        let now = state.storage.as_ref().map_or(0, Storage::len);
        let old = match smaller {
            None if now == 0 => state.storage.take(),
            Some(smaller) if now < smaller.capacity() => exchange(&mut state, smaller),
            other => other,
        };
        drop(state);
        drop(old);
    }

    /// The figures. Takes each shard's lock in turn, and looks at each entry: O(entries).
    pub fn stats(&self) -> EvictableStats {
        let room = &self.room;
        let mut stats = EvictableStats {
            rejected: self.rejected.load(Relaxed),
            bytes: room.bytes.load(Relaxed),
            entries: room.entries.load(Relaxed),
            target_bytes: room.target.load(Relaxed),
            max_bytes: room.max.load(Relaxed),
            metadata_bytes: size_of::<Self>() + size_of_val(self.shards()) + self.adapt.bytes(),
            ..EvictableStats::default()
        };
        self.write_back.count(&mut stats);
        for shard in self.shards() {
            let state = shard.lock();
            let counts = state.counts;
            stats.hits += counts.hits;
            stats.misses += counts.misses;
            stats.insertions += counts.insertions;
            stats.evicted_for_room += counts.for_room;
            stats.evicted_for_pressure += counts.for_pressure;
            stats.removed += counts.removed;
            stats.replaced += counts.replaced;
            if let Some(storage) = &state.storage {
                stats.metadata_bytes += storage.bytes();
                let is_pinned = |number: &u32| {
                    // SAFETY: in use, under the lock.
                    let header = unsafe { storage.entry(*number).as_ref() };
                    header.pins.is_held_more_than(1 + u32::from(header.is_dirty() || header.is_writing()))
                };
                stats.pinned += storage.policy.iter().filter(is_pinned).count();
            }
        }
        stats
    }
}

/// Moves a shard's entries to another storage; returns the former one.
fn exchange(state: &mut State, mut storage: Storage) -> Option<Storage> {
    if let Some(old) = &state.storage {
        storage.take_over(old);
    }
    state.storage.replace(storage)
}

impl<C: Content> Shrink for Shared<C> {
    fn count(&self) -> usize {
        self.room.bytes.load(Relaxed).saturating_sub(self.room.min).saturating_sub(self.write_back.bytes())
    }

    fn scan(&self, bytes: usize) -> usize {
        self.evict(bytes)
    }

    fn relieved(&self) {
        Self::relieved(self);
    }
}

/// The cache around a node.
///
/// # Safety
/// The node is a cache's of this type.
unsafe fn around<'a, C: Content>(node: NonNull<ForkNode>) -> &'a Shared<C> {
    // SAFETY: the caller's promise: the node is a field of the cache.
    unsafe { node.byte_sub(core::mem::offset_of!(Shared<C>, fork)).cast::<Shared<C>>().as_ref() }
}

unsafe fn freeze<C: Content>(node: NonNull<ForkNode>) {
    // SAFETY: the list's nodes are added by `new`, with the functions of their own type.
    let shared = unsafe { around::<C>(node) };
    shared.shards().iter().for_each(Shard::freeze);
    shared.adapt.freeze();
}

unsafe fn thaw<C: Content>(node: NonNull<ForkNode>) {
    // SAFETY: the list's nodes are added by `new`, with the functions of their own type.
    let shared = unsafe { around::<C>(node) };
    // SAFETY: `freeze` took them, on this thread or its copy.
    unsafe {
        shared.adapt.thaw();
        shared.shards().iter().for_each(|shard| shard.thaw());
    }
}

/// In a forked child: other threads' computations and write-backs will never end, and what they were about to put in will
/// never come.
unsafe fn inherit<C: Content>(node: NonNull<ForkNode>) {
    // SAFETY: the list's nodes are added by `new`, with the functions of their own type.
    let shared = unsafe { around::<C>(node) };
    let (mut bytes, mut entries) = (0, 0);
    for shard in shared.shards() {
        let mut state = shard.lock();
        state.inherit_flights();
        shared.take_writes_back(&mut state);
        let policy = state.storage.as_ref().map(|storage| &storage.policy);
        bytes += policy.map_or(0, |policy| policy.weight());
        entries += policy.map_or(0, |policy| policy.len());
    }
    shared.room.bytes.store(bytes, Relaxed);
    shared.room.entries.store(entries, Relaxed);
    shared.write_back.inherit();
}
