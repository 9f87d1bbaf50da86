//! The parts that both kinds of cache share: the owner of a cache, and methods of handles and builders.

use core::ops::Deref;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use crate::cache_error::CacheError;
use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::options::Options;
use crate::evictable_cache::shared::Shared;

/// Owns a cache, and ends it as it is dropped.
pub struct Owner<C: Content>(NonNull<Shared<C>>);

// SAFETY: it is a pointer to state that is atomic or behind locks, and keys and values may be used and dropped by any thread.
unsafe impl<C: Content<Key: Send + Sync, Value: Send + Sync>> Send for Owner<C> {}
// SAFETY: a shared owner gives shared references to that state, and keys and values are given out as shared references.
unsafe impl<C: Content<Key: Send + Sync, Value: Send + Sync>> Sync for Owner<C> {}
// A panic of the program's code leaves the cache whole.
impl<C: Content> UnwindSafe for Owner<C> {}
impl<C: Content> RefUnwindSafe for Owner<C> {}

impl<C: Content> Owner<C> {
    /// Makes a cache.
    pub fn new(options: Options<C>) -> Result<Self, CacheError> {
        Shared::new(options).map(Self)
    }
}

impl<C: Content> Deref for Owner<C> {
    type Target = Shared<C>;
    #[inline]
    fn deref(&self) -> &Shared<C> {
        // SAFETY: made by `new`, and ended when this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<C: Content> Drop for Owner<C> {
    fn drop(&mut self) {
        // SAFETY: guards borrow the cache, so none is left that could be used.
        unsafe { Shared::destroy(self.0) }
    }
}

/// The methods of a handle with a field `shared`, an [`Owner`].
macro_rules! common_methods {
    () => {
        /// The name that the cache was given.
        pub fn name(&self) -> &str {
            self.shared.name.text()
        }

        /// Takes out all entries. Values that are being computed are not kept. What is put in meanwhile, by a listener or by other
        /// threads, may stay.
        #[doc(alias = "invalidate_all")]
        pub fn clear(&self) {
            self.shared.clear();
        }

        /// The number of entries, with those whose time is over and that were not found yet. [`Self::expire`] takes them out.
        pub fn len(&self) -> usize {
            self.shared.room.entries.load(core::sync::atomic::Ordering::Relaxed)
        }

        /// True without entries, as [`Self::len`] counts them.
        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        /// The weight of the entries, and of values that are being put in, bytes.
        pub fn bytes(&self) -> usize {
            self.shared.room.bytes.load(core::sync::atomic::Ordering::Relaxed)
        }

        /// The figures. Takes each shard's lock in turn: O(entries).
        pub fn stats(&self) -> $crate::evictable_cache::api::stats::EvictableStats {
            self.shared.stats()
        }

        /// Says whether write-back lags behind: whether the program still has to write data before the memory of that data can
        /// go. While it lags, caches do not grow. Reclaim waits for up to 100 ms each time before it takes more of what is clean
        /// and in use. Reclaim forgets the note when it has done its work: say it again while it is so.
        pub fn set_congested(&self, is_congested: bool) {
            self.shared.set_congested(is_congested);
        }

        /// Frees at least `bytes`, if so many are not pinned, but never below the cache's `min_bytes`; returns how many. The
        /// cache then keeps to what is left until `relieved` is called, as it would else fill what was freed at once. Weir
        /// calls both by itself when memory is short, and when that is over. What values had of glibc's or jemalloc's memory is
        /// released by that allocator's own trim: from 64 KiB on, before this returns, unless another thread is at a trim just then.
        pub fn evict(&self, bytes: usize) -> usize {
            let _call = self.shared.listener.as_ref().map(|_| self.shared.calls.begin());
            self.shared.evict_for_program(bytes)
        }

        /// Says that the shortage is over for which entries were evicted: the cache may grow again.
        pub fn relieved(&self) {
            self.shared.relieved();
        }

        /// Takes out all entries whose time is over; how many there were. O(entries).
        pub fn expire(&self) -> usize {
            self.shared.sweep_all()
        }

        /// Sets what the cache never exceeds, bytes; entries above it are evicted, as far as they are not pinned. What was pinned
        /// goes later, some at each insertion under a new key, or all of it as this is called again. `usize::MAX` is no bound of
        /// the program's, as if the builder were given none. Where the builder makes no cache without one, the former bound stays.
        pub fn set_max_bytes(&self, bytes: usize) {
            self.shared.set_max(bytes);
        }
    };
}

/// The methods of a builder with a field `options`, of a cache of such keys and values.
macro_rules! common_options {
    ($key:ty, $value:ty) => {
        /// A name for figures and messages, cut at 31 bytes.
        pub fn name(mut self, name: &str) -> Self {
            self.options.name = weir_core::telemetry::name::Name::ended(name.as_bytes());
            self
        }

        /// A bound that the entries never exceed, bytes as they are weighed; no bound but memory if it is not called. What a key
        /// or a value owns that the cache cannot see does not count, unless it is weighed.
        ///
        /// Where Weir does not run, and while the setting `background` is 0, nobody says when memory is short, and the bound is 256
        /// MiB then. What was above that as it was set goes as entries come under new keys, or by `set_max_bytes(usize::MAX)`.
        pub fn max_bytes(mut self, bytes: usize) -> Self {
            self.options.max = bytes;
            self
        }

        /// The weight of entries that pressure leaves, bytes; one entry of each thread that inserts if it is not called.
        pub fn min_bytes(mut self, bytes: usize) -> Self {
            self.options.min = bytes;
            self
        }

        /// What the cache is to have the most of, where its entries weigh differently: look-ups that find their key, or bytes that
        /// are found. [`Favour::Entries`](crate::Favour::Entries) if it is not called. A full cache then has light entries rather
        /// than heavy ones, and may refuse an entry of more than twice the mean weight until its key was asked for often.
        pub fn favour(mut self, favour: weir_core::evict::replacement::favour::Favour) -> Self {
            self.options.favour = favour;
            self
        }

        /// How long a miss takes, where the cache cannot time it: its values come by `insert` or the like, and not from a closure
        /// that it is given. 100 us if it is not called. Times of closures count as soon as there are any.
        ///
        /// With the rate of hits it is the price of the cache's bytes: those of the cheapest cache go first.
        pub fn miss_time(mut self, time: core::time::Duration) -> Self {
            self.options.miss_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            self
        }

        /// How long an entry is there from its insertion on, whether it is used or not; for ever if it is not called.
        ///
        /// An entry whose time is over is no hit. Its memory goes back as the entry is found: by a look-up, under pressure, or by
        /// `expire`. Insertions, which each look at a few entries, find it as well.
        ///
        /// Times are exact to a tick of the kernel's coarse clock, either way: 4 ms at the usual 250 ticks a second. A shorter
        /// time may be over at once. They stand still while the machine is suspended. Where that matters, as for a name server's
        /// answers, [`Self::clock`] takes a clock that goes on (`CLOCK_BOOTTIME`).
        pub fn time_to_live(mut self, time: core::time::Duration) -> Self {
            self.options.ages.live = $crate::evictable_cache::eviction::expiry::nanoseconds(time);
            self
        }

        /// How long an entry is there after it was used last; for ever if it is not called. Exact to a tick, as
        /// [`Self::time_to_live`] says.
        pub fn time_to_idle(mut self, time: core::time::Duration) -> Self {
            self.options.ages.idle = $crate::evictable_cache::eviction::expiry::nanoseconds(time);
            self
        }

        /// How long each entry lives, where it is not as [`Self::time_to_live`] and [`Self::time_to_idle`] say. Called once for
        /// each insertion.
        ///
        /// ```
        /// use std::time::Duration;
        /// use weir::{EvictableCache, Expiry};
        ///
        /// /// What a name server answered, and for how long that holds.
        /// struct Answer { seconds: u32 }
        ///
        /// let live = |answer: &Answer| Some(Duration::from_secs(answer.seconds.into()));
        /// let cache = EvictableCache::<u32, Answer>::builder()
        ///     .expire_after(move |_, answer| Expiry { live: live(answer), ..Expiry::default() })
        ///     .build()
        ///     .unwrap();
        /// drop(cache.insert(1, Answer { seconds: 3600 }));
        /// drop(cache.insert(2, Answer { seconds: 0 }));
        /// assert!(cache.contains(&1) && !cache.contains(&2));
        /// ```
        pub fn expire_after(
            mut self,
            time: impl Fn(&$key, &$value) -> $crate::evictable_cache::eviction::expiry::Expiry + Send + Sync + 'static,
        ) -> Self {
            self.options.ages.by_entry = self.options.keep(time, |at| at as *mut _);
            self
        }

        /// A clock for caches whose entries have an end: the time since any moment in the past. For tests, and for times that go on
        /// while the machine is suspended. Without one the cache takes the system's monotonic time as of its last tick, some
        /// milliseconds ago.
        pub fn clock(mut self, clock: impl Fn() -> core::time::Duration + Send + Sync + 'static) -> Self {
            let clock = move || $crate::evictable_cache::eviction::expiry::nanoseconds(clock()).0;
            self.options.ages.clock = self.options.keep(clock, |at| at as *mut _);
            self
        }

        /// A listener is told of every entry that leaves the cache, and of values that are refused, before they are dropped or
        /// returned. It is called on the thread that was the reason, or on one of Weir's.
        ///
        /// An entry of a load may first need room of others. The listener is told of those before the load ends, and who wants its key
        /// waits still: the listener must not wait for them.
        ///
        /// The end of the cache waits for a listener that a thread of Weir's calls just now. So who drops the cache must not hold
        /// what the listener waits for.
        pub fn on_evict(
            mut self,
            listener: impl Fn(&$key, &$value, $crate::evictable_cache::api::stats::RemovalCause) + Send + Sync + 'static,
        ) -> Self {
            self.options.listener = self.options.keep(listener, |at| at as *mut _);
            self
        }

        /// The number of parts with a lock of their own, rounded up to a power of two; more than 1,024 are an error. Four
        /// for each CPU if it is not called, and fewer where the cache has less than 1 MiB for each.
        pub fn shards(mut self, shards: usize) -> Self {
            self.options.shards = shards;
            self
        }

        #[cfg(not(plain))]
        /// Entries lie in a zone of the program's own, in runs of whole pages: for large values. The cache grows to the zone's low
        /// mark (some 5 to 10 % of it are left), and replaces its own entries then.
        pub fn zone(mut self, zone: &'static $crate::zone::Zone) -> Self {
            self.options.place = $crate::evictable_cache::entry::place::Place::Zone(zone);
            self
        }

        #[cfg(not(plain))]
        /// Entries lie in a zone of the program's own while that is above its low mark. Else they lie on the heap, in runs of
        /// whole pages. This is for a zone of dear memory (locked, in huge pages) that does not hold the whole cache. Where the
        /// zone is short entries in it go, and where the heap is, those on the heap.
        pub fn zone_first(mut self, zone: &'static $crate::zone::Zone) -> Self {
            self.options.place = $crate::evictable_cache::entry::place::Place::First(zone);
            self
        }

        #[cfg(not(plain))]
        /// Some values own memory in a zone of the program's own (of [`Zone::alloc_first`]($crate::zone::Zone::alloc_first)), and
        /// others on the heap. `is_there` says of each value whether it does, once, as it is put in. Where the zone is
        /// short entries in it go, and where the heap is, the others.
        pub fn values_in(
            mut self,
            zone: &'static $crate::zone::Zone,
            is_there: impl Fn(&$key, &$value) -> bool + Send + Sync + 'static,
        ) -> Self {
            let is_there = self.options.keep(is_there, |at| at as *mut _);
            self.options.values = Some((zone, is_there));
            self
        }

        #[cfg(not(plain))]
        /// Entries lie below 4 GiB, in runs of whole pages: for generated code and 32-bit addresses.
        pub fn below_4_gib(mut self) -> Self {
            self.options.place = $crate::evictable_cache::entry::place::Place::Low32;
            self
        }
    };
}

pub(super) use {common_methods, common_options};
