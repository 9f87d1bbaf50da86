//! How a typed cache is made.

use core::alloc::Layout;
use core::any::type_name;
use core::fmt;
use core::hash::{BuildHasher, Hash};

use super::cache::EvictableCache;
use super::common::{Owner, common_options};
use super::hasher::SeededHash;
use super::weigh::{self, Known, Weigh};
use crate::cache_error::CacheError;
use crate::evictable_cache::entry::typed::{Block, Typed};
use crate::evictable_cache::options::Options;

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static> EvictableCache<K, V> {
    /// Sets out how a cache is made.
    pub fn builder() -> EvictableCacheBuilder<K, V> {
        EvictableCacheBuilder { options: Options::new(), owned: None, hasher: SeededHash::new() }
    }
}

/// Makes an [`EvictableCache`].
///
/// ```
/// use weir::EvictableCache;
///
/// let cache = EvictableCache::<u64, [u8; 4096]>::builder()
///     .name("blocks")
///     .max_bytes(1 << 30)
///     .min_bytes(1 << 20)
///     .on_evict(|block, _, cause| println!("{block}: {cause:?}"))
///     .build()
///     .unwrap();
/// assert_eq!(cache.name(), "blocks");
/// ```
pub struct EvictableCacheBuilder<K: Eq + 'static, V: 'static, S = SeededHash> {
    options: Options<Typed<K, V>>,
    /// Bytes that a key and a value own beside their block, where that is asked for.
    owned: Option<fn(&K, &V) -> usize>,
    hasher: S,
}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S> EvictableCacheBuilder<K, V, S> {
    common_options!(K, V);

    /// How to weigh an entry, bytes. The closure is called once for each insertion. 0 counts as 1: an entry without weight would
    /// never be evicted. Above 32 MiB it is rounded down, by one part in 16 million at most; 2^54 is the most that counts.
    ///
    /// If it is not called, an entry counts its block: key, value and 16 bytes. What key and value own counts as well where they
    /// are of common types: `Vec<u8>`, `String`, `Arc<str>` and their like. Key or value of another type may own memory. Then
    /// call [`Self::weighed`] or this. With [`Self::max_bytes`] alone a cache is built all the same, and what such a type owns does
    /// not count. The bound is as one on the number of entries, and there is one always.
    pub fn weigher(mut self, weigher: impl Fn(&K, &V) -> usize + Send + Sync + 'static) -> Self {
        self.options.weigher = self.options.keep(weigher, |at| at as *mut _);
        self
    }

    /// Entries count their blocks, and what key and value say that they own ([`Weigh`]).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use weir::EvictableCache;
    ///
    /// let cache = EvictableCache::<u32, Vec<Arc<str>>>::builder().weighed().build().unwrap();
    /// let entry = cache.insert(1, vec!["a".repeat(1000).into(), "b".repeat(2000).into()]).unwrap();
    /// assert!(entry.weight() > 3000 && cache.bytes() == entry.weight());
    /// ```
    pub fn weighed(self) -> Self
    where
        K: Weigh,
        V: Weigh,
    {
        let owned = |key: &K, value: &V| key.heap_bytes().saturating_add(value.heap_bytes());
        Self { owned: Some(owned), ..self }
    }

    /// Weighs entries as their types demand, where the program did not say how.
    fn weigh_by_default(mut self) -> Result<Self, CacheError> {
        if self.options.weigher.is_some() {
            return Ok(self);
        }
        let known = weigh::known::<K, V>();
        self.options.needs_bound = self.owned.is_none() && matches!(known, Known::Part | Known::Nothing);
        if self.options.needs_bound && self.options.max == usize::MAX {
            return Err(CacheError::Unweighed { key: type_name::<K>(), value: type_name::<V>() });
        }
        let owned = match known {
            _ if self.owned.is_some() => self.owned,
            Known::Block | Known::Nothing => None,
            Known::Common | Known::Part => Some(weigh::heap_bytes as fn(&K, &V) -> usize),
        };
        let Some(owned) = owned else { return Ok(self) };
        let block = self.options.place.size(Layout::new::<Block<K, V>>());
        Ok(self.weigher(move |key, value| block.saturating_add(owned(key, value))))
    }

    /// Hashes keys in another way. The hashes may be weak, as long as keys that differ seldom have the same.
    ///
    /// Keys of one hash are found one after the other. Where many have it and all entries are pinned, an insertion that is refused
    /// looks at each by such a search.
    pub fn hasher<T: BuildHasher>(self, hasher: T) -> EvictableCacheBuilder<K, V, T> {
        let Self { options, owned, .. } = self;
        EvictableCacheBuilder { options, owned, hasher }
    }

    /// Makes the cache.
    ///
    /// # Errors
    /// [`CacheError::OutOfMemory`], [`CacheError::Shards`]; [`CacheError::Unweighed`] for types that own memory of which the
    /// cache knows nothing, where it has no bound either: it would hold more than it says.
    pub fn build(self) -> Result<EvictableCache<K, V, S>, CacheError> {
        let Self { options, hasher, .. } = self.weigh_by_default()?;
        Ok(EvictableCache { shared: Owner::new(options)?, hasher })
    }
}

impl<K: Eq + 'static, V: 'static, S> fmt::Debug for EvictableCacheBuilder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.options.name.text();
        f.debug_struct("EvictableCacheBuilder").field("name", &name).finish_non_exhaustive()
    }
}
