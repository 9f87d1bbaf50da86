//! Weir's cache, as programs use it, with entries that weigh one each.

use super::cache::{Cache, Hash};
use weir::EvictableCache;

/// An [`EvictableCache`] of numbers.
pub struct Weir(EvictableCache<u64, u64, Hash>);

impl Weir {
    /// At most `entries` entries.
    pub fn new(entries: usize) -> Self {
        // As many parts as foyer's: the default is by bytes, of which these weights say nothing.
        let shards = if entries < 4096 { 1 } else { 8 };
        // Pressure of other programs on the machine takes nothing: the policy is measured.
        let builder = EvictableCache::builder().min_bytes(entries).max_bytes(entries).weigher(|_, _| 1).shards(shards);
        Self(builder.hasher(Hash::default()).build().expect("there is memory for a cache"))
    }
}

impl Cache for Weir {
    fn get(&self, key: u64) -> Option<u64> {
        // As quick_cache and moka do; foyer and `EvictableCache::get` return a guard.
        self.0.get_copied(&key)
    }

    fn insert(&self, key: u64, value: u64) {
        drop(self.0.insert(key, value));
    }

    fn held(&self) -> usize {
        self.0.len()
    }
}
