//! The beginning and the end of a cache, what reclaim calls, and `fork`.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use weir_linux::process::evictable_caches::{self as process, EvictableRow, ForkCalls, ForkNode};

use super::adapt::Adaptation;
use super::dirt::Dirt;
use super::header::Content;
use super::room::Room;
use super::seams::{self, Shrink};
use super::shard::Shard;
use super::shared::{Options, Shared};
use crate::heap;
use crate::object_cache::CacheError;

/// Shards for each CPU, where the cache is large enough: two threads seldom meet at one then.
const SHARDS_PER_CPU: usize = 4;
/// Bytes of a shard of the default number of them, at least: small parts evict worse than one whole.
const SHARD_BYTES: usize = 1 << 20;
/// The most shards there can be.
const MOST_SHARDS: usize = 1024;

impl<C: Content> Shared<C> {
    /// Makes one.
    pub fn new(options: Options<C>) -> Result<NonNull<Self>, CacheError> {
        let most = (SHARDS_PER_CPU * process::cpus()).next_power_of_two().min(MOST_SHARDS);
        let count = match options.shards {
            0 => (options.max / SHARD_BYTES).clamp(1, most),
            count if count > MOST_SHARDS => return Err(CacheError::Shards { shards: count, max: MOST_SHARDS }),
            count => count.next_power_of_two(),
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
        let [seed, _] = process::random();
        let Options { name, min, max, place, ages, weigher, listener, writer, .. } = options;
        // SAFETY: fresh, and of that layout.
        unsafe {
            home.write(Self {
                fork: ForkNode::new(
                    &const {
                        ForkCalls { freeze: freeze::<C>, thaw: thaw::<C>, inherit: inherit::<C>, figures: figures::<C> }
                    },
                ),
                registration: UnsafeCell::new(None),
                name,
                shards: NonNull::slice_from_raw_parts(shards, count),
                seed: seed as u64,
                turn: AtomicU32::new(0),
                place,
                room: Room::new(min.min(max), max),
                adapt: Adaptation::new(),
                ages: ages.are_there().then_some(ages),
                write_back: Dirt::new(writer),
                weigher,
                listener,
                rejected: AtomicU64::new(0),
                outside: AtomicUsize::new(0),
                scans: AtomicUsize::new(0),
            });
        }
        // SAFETY: the cache stays where it is until `destroy` ends both; the node is its first field in use by `fork`.
        unsafe {
            process::add(NonNull::from(&home.as_ref().fork));
            let place = home.as_ref().place.class();
            *home.as_ref().registration.get() = seams::register(home, &home.as_ref().name, place);
        }
        // SAFETY: made above.
        if unsafe { (*home.as_ref().registration.get()).is_none() } {
            // SAFETY: nothing refers to it yet.
            unsafe { Self::destroy(home) };
            return Err(CacheError::OutOfMemory);
        }
        Ok(home)
    }

    /// Ends a cache: writes back what is dirty, drops what is there. Entries that are still held (by guards that were
    /// forgotten) stay, and so does the cache's own memory then.
    ///
    /// # Safety
    /// Nothing uses the cache any more.
    pub unsafe fn destroy(this: NonNull<Self>) {
        // SAFETY: valid until the end of this function; reclaim may still use it.
        let shared = unsafe { this.as_ref() };
        // SAFETY: the registration is this function's: nothing else reads it after `new`.
        let registration = unsafe { (*shared.registration.get()).take() };
        if let Some(registration) = registration {
            registration.end();
        }
        let _end = End(this);
        shared.clear();
    }
}

/// The end of a cache whose entries are dropped, also where one of them panicked: then the others are dropped and the listener
/// is told no more, as with the elements of a `Vec`.
struct End<C: Content>(NonNull<Shared<C>>);

impl<C: Content> Drop for End<C> {
    fn drop(&mut self) {
        let this = self.0;
        // SAFETY: valid until the end of this function; the maker of this gave it up.
        let shared = unsafe { this.as_ref() };
        shared.drop_all();
        // SAFETY: `new` added it.
        unsafe { process::remove(NonNull::from(&shared.fork)) };
        // An entry is left where a guard was forgotten, or where this runs inside reclaim's own scan: a listener, or the
        // `Drop` of a key or value, ended the last handle on the thread of the callback, for which `unregister` does not
        // wait. That scan goes on with the cache, so the cache is leaked.
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

impl<C: Content> Shrink for Shared<C> {
    fn count(&self) -> usize {
        self.room.bytes.load(Relaxed).saturating_sub(self.room.least()).saturating_sub(self.write_back.bytes())
    }

    fn scan(&self, bytes: usize, may_write: bool) -> usize {
        let freed = self.evict_for(bytes, may_write);
        if freed < bytes && self.write_back.is_congested() {
            seams::set_congested(self.place.class());
        }
        freed
    }

    /// Entries that a weigher weighs are more than their blocks.
    fn is_of_program(&self) -> bool {
        self.weigher.is_some()
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

unsafe fn figures<C: Content>(node: NonNull<ForkNode>) -> Option<EvictableRow> {
    // SAFETY: the list's nodes are added by `new`, with the functions of their own type.
    unsafe { around::<C>(node) }.published()
}

/// In a forked child: other threads' computations and write-backs will never end, and what they were about to put in will
/// never come.
unsafe fn inherit<C: Content>(node: NonNull<ForkNode>) {
    // SAFETY: the list's nodes are added by `new`, with the functions of their own type.
    let shared = unsafe { around::<C>(node) };
    let (mut bytes, mut entries) = (0, 0);
    let mut is_whole = true;
    for shard in shared.shards() {
        // A fork that took no locks (in a signal handler that interrupted a holder of one) left this one held: what is
        // behind it is not consistent, and waiting for it would be for ever.
        let Some(mut state) = shard.try_lock() else {
            is_whole = false;
            continue;
        };
        state.inherit_flights();
        state.walks = 0;
        shared.take_writes_back(&mut state);
        let policy = state.storage.as_ref().map(|storage| &storage.policy);
        bytes += policy.map_or(0, |policy| policy.weight());
        entries += policy.map_or(0, |policy| policy.len());
    }
    if is_whole {
        shared.room.bytes.store(bytes, Relaxed);
        shared.room.entries.store(entries, Relaxed);
    }
    // The relief of the parent's pressure comes to the parent alone.
    shared.room.is_pressed.store(false, Relaxed);
    shared.room.forget_inserters();
    shared.write_back.inherit();
}
