//! The beginning and the end of a cache, and `fork`.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use weir_core::telemetry::tables::EvictableRow;
use weir_linux::os::process::random_words;
use weir_linux::platform::machine::possible_cpus;
use weir_linux::process::callbacks::Registration;
use weir_linux::process::evictable_list::{self, Evictable, Node};
use weir_linux::process::heap::HEAP;

use super::entry::header::Content;
use super::eviction::choice::Choice;
use super::eviction::room::Room;
use super::options::Options;
use super::parts::Zoned;
use super::reclaim;
use super::shard::state::Shard;
use super::shared::Shared;
use super::worth::Worth;
use crate::heap;
use crate::object_cache::CacheError;

/// Shards for each CPU, where the cache is large enough: two threads seldom meet at one then.
const SHARDS_PER_CPU: usize = 4;
/// Bytes of a shard of the default number of them, at least: small parts evict worse than one whole.
const SHARD_BYTES: usize = 1 << 20;
/// The most shards there can be.
const MOST_SHARDS: usize = 1024;

/// The number of shards of a cache; a power of two.
fn shards<C: Content>(options: &Options<C>) -> Result<usize, CacheError> {
    let most = || (SHARDS_PER_CPU * possible_cpus().map_or(1, |(count, _)| count)).next_power_of_two().min(MOST_SHARDS);
    match options.shards {
        // Down to a power of two.
        0 => Ok(1 << (options.max / SHARD_BYTES).clamp(1, most()).ilog2()),
        count if count > MOST_SHARDS => Err(CacheError::Shards { shards: count, max: MOST_SHARDS }),
        count => Ok(count.next_power_of_two()),
    }
}

impl<C: Content> Shared<C> {
    /// Makes a cache.
    pub fn new(options: Options<C>) -> Result<NonNull<Self>, CacheError> {
        let count = shards(&options)?;
        let home = NonNull::new(heap::alloc_aligned(align_of::<Self>().max(64), size_of::<Self>()));
        let shards = NonNull::new(heap::alloc_aligned(align_of::<Shard>(), count * size_of::<Shard>()));
        let (Some(home), Some(shards), false) = (home, shards, options.is_short) else {
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
        let Options { name, min, max, place, values, ages, weigher, listener, .. } = options;
        let zoned = Zoned::new(place, values);
        let shared = Self {
            node: Node::new(home),
            registrations: UnsafeCell::new([None, None]),
            name,
            shards: NonNull::slice_from_raw_parts(shards, count),
            seed: random_words()[0] as u64,
            turn: AtomicU32::new(0),
            place,
            room: Room::new(min.min(max), max, zoned.zone()),
            zoned,
            choice: Choice::new(options.favour),
            ages: ages.are_there().then_some(ages),
            weigher,
            listener,
            rejected: AtomicU64::new(0),
            outside: AtomicUsize::new(0),
            scans: AtomicUsize::new(0),
            worth: Worth::new(),
        };
        // SAFETY: a fresh block of this layout. The cache stays where it is until `destroy` ends list and registration, which
        // nothing but this function and that one uses.
        unsafe {
            home.write(shared);
            evictable_list::add(HEAP.platform(), NonNull::from(&home.as_ref().node));
            let is_registered = reclaim::register(home, &mut *home.as_ref().registrations.get());
            if !is_registered {
                Self::destroy(home);
                return Err(CacheError::OutOfMemory);
            }
        }
        Ok(home)
    }

    /// Ends a cache, and drops what is there. Entries that are still held (by guards that were forgotten) stay, and so does
    /// the cache's own memory then.
    ///
    /// # Safety
    /// Nothing uses the cache any more.
    pub unsafe fn destroy(this: NonNull<Self>) {
        // SAFETY: valid until the end of this function; reclaim may still use it.
        let shared = unsafe { this.as_ref() };
        // SAFETY: the registrations are this function's: nothing else reads them after `new`.
        let registrations = unsafe { core::mem::take(&mut *shared.registrations.get()) };
        registrations.into_iter().flatten().for_each(Registration::unregister);
        let _end = End(this);
        shared.clear();
    }
}

/// The end of a cache whose entries are dropped, also where one of them panicked. After a panic the others are still dropped,
/// as with the elements of a `Vec`, and the listener is told no more.
struct End<C: Content>(NonNull<Shared<C>>);

impl<C: Content> Drop for End<C> {
    fn drop(&mut self) {
        let this = self.0;
        // SAFETY: valid until the end of this function; the maker of this gave it up.
        let shared = unsafe { this.as_ref() };
        shared.drop_all();
        // SAFETY: `new` added it.
        unsafe { evictable_list::remove(HEAP.platform(), NonNull::from(&shared.node)) };
        // An entry is left where a guard was forgotten, or where this runs inside reclaim's own scan. The scan's case: a
        // listener, or the `Drop` of a key or value, ended the last handle on the callback's thread. `unregister` does not
        // wait for that thread. That scan goes on with the cache, so the cache is leaked.
        if shared.outside.load(Relaxed) + shared.scans.load(Relaxed) > 0 {
            return;
        }
        let shards = shared.shards;
        // SAFETY: nothing refers to the cache any more; both blocks are `new`'s.
        unsafe {
            shards.drop_in_place();
            heap::free(shards.as_ptr().cast());
            this.drop_in_place();
            heap::free(this.as_ptr().cast());
        }
    }
}

impl<C: Content> Evictable for Shared<C> {
    fn freeze(&self) {
        self.shards().iter().for_each(Shard::freeze);
        self.choice.freeze();
    }

    unsafe fn thaw(&self) {
        // SAFETY: `freeze` took them, on this thread or its copy.
        unsafe {
            self.choice.thaw();
            self.shards().iter().for_each(|shard| shard.thaw());
        }
    }

    fn figures(&self) -> Option<EvictableRow> {
        self.published()
    }

    /// In a forked child: other threads' computations will never end, and what they were about to put in will never come.
    fn inherit(&self) {
        let (mut bytes, mut entries, mut is_whole) = (0, 0, true);
        for shard in self.shards() {
            // A fork that took no locks (in a signal handler that interrupted a holder of one) left this one held. The state
            // behind it is not consistent, and waiting for it would be for ever.
            let Some(mut state) = shard.try_lock() else {
                is_whole = false;
                continue;
            };
            state.flights.inherit();
            state.waiters.inherit();
            state.walks = 0;
            if let Some(storage) = &state.storage {
                bytes += storage.policy().weight();
                entries += storage.policy().len();
            }
        }
        if is_whole {
            self.room.bytes.store(bytes, Relaxed);
            self.room.entries.store(entries, Relaxed);
        }
        // The relief of the parent's pressure comes to the parent alone.
        self.room.is_pressed.store(false, Relaxed);
        self.room.forget_inserters();
    }
}
