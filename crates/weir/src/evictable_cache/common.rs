//! What the handles of both kinds of cache do alike.

/// The methods of a handle with a method `shared`.
macro_rules! common_methods {
    () => {
        /// The name it was given.
        pub fn name(&self) -> &str {
            $crate::evictable_cache::name::text(&self.shared().name)
        }

        #[doc(alias = "invalidate_all")]
        /// Writes back what is dirty, waits for it, and takes out all entries; what could not be written back is lost.
        pub fn clear(&self) {
            self.shared().clear();
        }

        /// The number of entries.
        pub fn len(&self) -> usize {
            self.shared().room.entries.load(core::sync::atomic::Ordering::Relaxed)
        }

        /// True without entries.
        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        /// What the entries weigh, and what weighs a value that is being put in.
        pub fn bytes(&self) -> usize {
            self.shared().room.bytes.load(core::sync::atomic::Ordering::Relaxed)
        }

        /// The figures. Takes each shard's lock in turn: O(entries).
        pub fn stats(&self) -> $crate::evictable_cache::stats::EvictableStats {
            self.shared().stats()
        }

        /// Frees at least `bytes`, if so many are clean and not pinned, but never below the cache's `min_bytes`; returns
        /// how many. The cache then keeps to what is left until `relieved` is called, as it would else fill what was
        /// freed at once. Weir calls both by itself when memory is short, and when that is over.
        ///
        /// Where there are too few clean entries, dirty ones are written back, which frees nothing yet.
        pub fn evict(&self, bytes: usize) -> usize {
            self.shared().evict(bytes)
        }

        /// Says that the shortage is over for which entries were evicted: the cache may grow again.
        pub fn relieved(&self) {
            self.shared().relieved();
        }

        /// Takes out all entries whose time is over; how many there were. O(entries).
        pub fn expire(&self) -> usize {
            self.shared().sweep_all()
        }

        /// Sets what the cache never exceeds; entries above it are evicted, as far as they are clean and not pinned.
        pub fn set_max_bytes(&self, bytes: usize) {
            self.shared().set_max(bytes);
        }

        /// Writes everything back that is dirty, and waits until nothing is. Threads that go on to dirty entries prolong
        /// it.
        ///
        /// # Errors
        /// Write-backs failed: their entries are kept, dirty. Each was tried at least once.
        ///
        /// # Panics
        /// In the write-back callback, which would wait for itself.
        pub fn flush(&self) -> Result<(), $crate::evictable_cache::errors::WriteBackError> {
            self.shared().flush()
        }
    };
}

/// The methods of a builder with a field `options`.
macro_rules! common_options {
    () => {
        /// A name for figures and messages (cut at 31 bytes).
        pub fn name(mut self, name: &str) -> Self {
            self.options.name = $crate::evictable_cache::name::bytes(name);
            self
        }

        /// What the entries never exceed, bytes as they are weighed; no bound but memory if it is not called. (Loads into a cache
        /// with a write-back exceed it, by as much as is pinned or dirty.)
        pub fn max_bytes(mut self, bytes: usize) -> Self {
            self.options.max = bytes;
            self
        }

        /// What pressure leaves of the entries, bytes; one entry of each thread that inserts if it is not called.
        pub fn min_bytes(mut self, bytes: usize) -> Self {
            self.options.min = bytes;
            self
        }

        /// How long an entry is there from its insertion on, whether it is used or not; for ever if it is not called.
        ///
        /// What is over is no hit, and its memory goes back as it is found: by a look-up, by insertions, which each look at a
        /// few entries, under pressure, or by `expire`. An entry that is dirty stays until it is written back.
        pub fn time_to_live(mut self, time: core::time::Duration) -> Self {
            self.options.ages.live = $crate::evictable_cache::ages::nanoseconds(time);
            self
        }

        /// How long an entry is there after it was used last; for ever if it is not called.
        pub fn time_to_idle(mut self, time: core::time::Duration) -> Self {
            self.options.ages.idle = $crate::evictable_cache::ages::nanoseconds(time);
            self
        }

        /// What time it is, since any moment in the past, for caches whose entries have an end: for tests. If it is not
        /// called, it is the system's monotonic time as of its last tick, some milliseconds ago.
        pub fn clock(mut self, clock: impl Fn() -> core::time::Duration + Send + Sync + 'static) -> Self {
            let clock = move || $crate::evictable_cache::ages::nanoseconds(clock());
            self.options.ages.clock = $crate::evictable_cache::closure::Closure::new(clock, |at| at as *mut _);
            self.is_short |= self.options.ages.clock.is_none();
            self
        }

        /// The number of parts with a lock of their own, rounded up to a power of two; more than 1,024 are an error. Four
        /// for each CPU if it is not called, and fewer where the cache has less than 1 MiB for each.
        pub fn shards(mut self, shards: usize) -> Self {
            self.options.shards = shards;
            self
        }

        /// Entries lie in a zone of the program's own, in runs of whole pages: for large values.
        pub fn zone(mut self, zone: &'static $crate::zone::Zone) -> Self {
            self.options.place = $crate::evictable_cache::place::Place::Zone(zone);
            self
        }
    };
}

pub(super) use {common_methods, common_options};
