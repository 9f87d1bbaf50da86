//! How a typed cache is made.

use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::cache::EvictableCache;
use super::closure::Closure;
use super::common::common_options;
use super::entry::WriteBatch;
use super::handle::Batch;
use super::header::Header;
use super::shared::{Options, Shared};
use super::stats::Cause;
use super::typed::Typed;
use crate::object_cache::CacheError;

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static> EvictableCache<K, V> {
    /// Sets out how a cache is made.
    pub fn builder() -> EvictableCacheBuilder<K, V> {
        EvictableCacheBuilder::new(super::hasher::SeededHash::new())
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
pub struct EvictableCacheBuilder<K: Eq + 'static, V: 'static, S = super::hasher::SeededHash> {
    options: Options<Typed<K, V>>,
    /// There was no memory for a closure.
    is_short: bool,
    hasher: S,
    types: PhantomData<(K, V)>,
}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S> EvictableCacheBuilder<K, V, S> {
    pub(super) fn new(hasher: S) -> Self {
        let options = Options::new();
        Self { options, is_short: false, hasher, types: PhantomData }
    }

    common_options!();

    /// What an entry counts, bytes; the size of its block (key, value and 48 bytes) if it is not called. For values that
    /// have memory of their own that should be in it. Called once for each insertion. 0 counts as 1: an entry without
    /// weight would never be evicted.
    pub fn weigher(mut self, weigher: impl Fn(&K, &V) -> usize + Send + Sync + 'static) -> Self {
        self.options.weigher = Closure::new(weigher, |at| at as *mut _);
        self.is_short |= self.options.weigher.is_none();
        self
    }

    /// Is told of every entry that leaves the cache, and of values that are refused, before they are dropped or returned;
    /// on the thread that was the reason, or on one of Weir's.
    pub fn on_evict(mut self, listener: impl Fn(&K, &V, Cause) + Send + Sync + 'static) -> Self {
        self.options.listener = Closure::new(listener, |at| at as *mut _);
        self.is_short |= self.options.listener.is_none();
        self
    }

    /// Writes dirty entries back ([`Entry::mark_dirty`](crate::Entry::mark_dirty)). It gets a batch of pinned entries, and
    /// completes each: before it returns, or later and on any thread; until then the entry stays. It is called when an
    /// eighth of the cache is dirty, when room is needed, by a flush, and at the end, on the thread that was the reason or
    /// on one of Weir's, and by several threads at once, but never for one key by two.
    pub fn write_back(mut self, write_back: impl Fn(WriteBatch<K, V>) + Send + Sync + 'static) -> Self {
        self.options.writer = Closure::new(
            move |cache: NonNull<()>, entries: &[NonNull<Header>]| {
                // SAFETY: called by this cache with its own address, and entries that it hands out.
                write_back(WriteBatch(unsafe { Batch::new(cache, entries) }))
            },
            |at| at as *mut _,
        );
        self.is_short |= self.options.writer.is_none();
        self
    }

    /// Hashes keys in another way. The hashes may be weak, as long as keys that differ seldom have the same.
    pub fn hasher<T: BuildHasher>(self, hasher: T) -> EvictableCacheBuilder<K, V, T> {
        let Self { options, is_short, types, .. } = self;
        EvictableCacheBuilder { options, is_short, hasher, types }
    }

    /// Makes the cache.
    ///
    /// # Errors
    /// [`CacheError::OutOfMemory`], [`CacheError::Shards`].
    pub fn build(self) -> Result<EvictableCache<K, V, S>, CacheError> {
        if self.is_short {
            return Err(CacheError::OutOfMemory);
        }
        Ok(EvictableCache::of(Shared::new(self.options)?, self.hasher))
    }
}

impl<K: Eq + 'static, V: 'static, S> core::fmt::Debug for EvictableCacheBuilder<K, V, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EvictableCacheBuilder")
            .field("name", &super::name::text(&self.options.name))
            .finish_non_exhaustive()
    }
}
