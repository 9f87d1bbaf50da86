//! The beginning and the end of a cache.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::entry::header::Content;
use super::eviction::choice::Choice;
use super::eviction::room::Room;
#[cfg(not(plain))]
use super::eviction::rounds::Gathering;
use super::eviction::scans::Scans;
#[cfg(plain)]
use super::host::alone::{enter, leave, stop};
#[cfg(not(plain))]
use super::host::reclaim::{enter, leave, stop};
use super::host::{self, Membership};
use super::options::Options;
use super::parts::Zoned;
use super::shard::state::Shard;
use super::shared::Shared;
use super::worth::Worth;
use crate::cache_error::CacheError;

/// Shards for each CPU, where the cache is large enough: two threads seldom meet at one then.
const SHARDS_PER_CPU: usize = 4;
/// Bytes of a shard of the default number of them, at least: small parts evict worse than one whole.
const SHARD_BYTES: usize = 1 << 20;
/// The most shards there can be.
const MOST_SHARDS: usize = 1024;

/// The number of shards of a cache; a power of two.
fn shards<C: Content>(options: &Options<C>) -> Result<usize, CacheError> {
    let most = || (SHARDS_PER_CPU * host::cpus()).next_power_of_two().min(MOST_SHARDS);
    match options.shards {
        // Down to a power of two.
        0 => Ok(1 << (options.max / SHARD_BYTES).clamp(1, most()).ilog2()),
        count if count > MOST_SHARDS => Err(CacheError::Shards { shards: count, max: MOST_SHARDS }),
        count => Ok(count.next_power_of_two()),
    }
}

/// The layout of so many shards, as [`shards`] allows them.
fn shards_layout(count: usize) -> Layout {
    Layout::array::<Shard>(count).expect("there are 1,024 at most")
}

impl<C: Content> Shared<C> {
    /// Makes a cache.
    pub fn new(options: Options<C>) -> Result<NonNull<Self>, CacheError> {
        let count = shards(&options)?;
        let layouts = [Layout::new::<Self>(), shards_layout(count)];
        let blocks = layouts.map(host::alloc);
        let ([Some(home), Some(shards)], false) = (blocks, options.is_short) else {
            for (block, layout) in blocks.into_iter().zip(layouts) {
                // SAFETY: a block of this function's, of this layout.
                block.into_iter().for_each(|block| unsafe { host::free(block, layout) });
            }
            return Err(CacheError::OutOfMemory);
        };
        let (home, shards) = (home.cast::<Self>(), shards.cast::<Shard>());
        for at in 0..count {
            // SAFETY: in the block, and large enough.
            unsafe { shards.add(at).write(Shard::new()) };
        }
        let Options { name, max, min, place, values, ages, weigher, needs_bound, listener, .. } = options;
        let zoned = Zoned::new(place, values);
        let shared = Self {
            membership: Membership::new(home),
            name,
            shards: NonNull::slice_from_raw_parts(shards, count),
            seed: host::random()[0],
            turn: AtomicU32::new(0),
            place,
            room: Room::new((min, max), (place, C::OWNS_MEMORY), zoned.zone()),
            zoned,
            choice: Choice::new(options.favour),
            ages: ages.are_there().then_some(ages),
            weigher,
            needs_bound,
            listener,
            rejected: AtomicU64::new(0),
            outside: AtomicUsize::new(0),
            scans: Scans::new(),
            calls: Scans::new(),
            #[cfg(not(plain))]
            gathering: Gathering::new(),
            worth: Worth::new(options.miss_ns),
            #[cfg(not(plain))]
            parents: [const { AtomicU64::new(0) }; 5],
        };
        // SAFETY: a fresh block of this layout. The cache stays where it is until `destroy`, by which the process forgets it.
        unsafe {
            home.write(shared);
            if !enter(home) {
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
        // SAFETY: `new` entered it, and this ends it once.
        unsafe { stop(shared) };
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
        // SAFETY: `destroy` stopped it.
        unsafe { leave(shared) };
        // An entry is left where a guard was forgotten, or where this runs inside reclaim's own scan. The scan's case: a
        // listener, or the `Drop` of a key or value, ended the last handle on the callback's thread. `unregister` does not
        // wait for that thread. That scan goes on with the cache, so the cache is leaked.
        if shared.outside.load(Relaxed) > 0 || shared.scans.are_there() {
            return;
        }
        let shards = shared.shards;
        // SAFETY: nothing refers to the cache any more; both blocks are `new`'s.
        unsafe {
            shards.drop_in_place();
            host::free(shards.cast(), shards_layout(shards.len()));
            this.drop_in_place();
            host::free(this.cast(), Layout::new::<Shared<C>>());
        }
    }
}
