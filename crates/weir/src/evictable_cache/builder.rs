//! How a typed cache is made.

use core::alloc::Layout;
use core::any::type_name;
use core::hash::{BuildHasher, Hash};
use core::ptr::NonNull;

use super::ages::Expiry;
use super::cache::EvictableCache;
use super::closure::Closure;
use super::common::common_options;
use super::entry::WriteBatch;
use super::handle::Batch;
use super::header::Header;
use super::shared::{Options, Shared};
use super::stats::Cause;
use super::typed::{Block, Typed};
use super::weigh::{self, Known, Weigh};
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
    /// What a key and a value own beside their block, where that is asked for.
    owned: Option<fn(&K, &V) -> usize>,
    /// There was no memory for a closure.
    is_short: bool,
    hasher: S,
}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S> EvictableCacheBuilder<K, V, S> {
    pub(super) fn new(hasher: S) -> Self {
        Self { options: Options::new(), owned: None, is_short: false, hasher }
    }

    common_options!();

    /// What an entry counts, bytes. Called once for each insertion. 0 counts as 1: an entry without weight would never be
    /// evicted.
    ///
    /// If it is not called, an entry counts its block (key, value and 48 bytes), and what key and value own where they are of
    /// common types: `Vec<u8>`, `String`, `Arc<str>` and their like. Of other types that own memory [`Self::weighed`] is
    /// to be called, or this, or [`Self::max_bytes`].
    pub fn weigher(mut self, weigher: impl Fn(&K, &V) -> usize + Send + Sync + 'static) -> Self {
        self.options.weigher = Closure::new(weigher, |at| at as *mut _);
        self.is_short |= self.options.weigher.is_none();
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
    fn weigh_by_default(self) -> Result<Self, CacheError> {
        if self.options.weigher.is_some() {
            return Ok(self);
        }
        let owned = match weigh::known::<K, V>() {
            _ if self.owned.is_some() => self.owned,
            Known::Block => None,
            Known::Common => Some(weigh::heap_bytes as fn(&K, &V) -> usize),
            Known::Unknown if self.options.max != usize::MAX => None,
            Known::Unknown => return Err(CacheError::Unweighed { key: type_name::<K>(), value: type_name::<V>() }),
        };
        let Some(owned) = owned else { return Ok(self) };
        let block = self.options.place.size(Layout::new::<Block<K, V>>());
        Ok(self.weigher(move |key, value| block.saturating_add(owned(key, value))))
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
    pub fn expire_after(mut self, time: impl Fn(&K, &V) -> Expiry + Send + Sync + 'static) -> Self {
        self.options.ages.by_entry = Closure::new(time, |at| at as *mut _);
        self.is_short |= self.options.ages.by_entry.is_none();
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
        let Self { options, owned, is_short, .. } = self;
        EvictableCacheBuilder { options, owned, is_short, hasher }
    }

    /// Makes the cache.
    ///
    /// # Errors
    /// [`CacheError::OutOfMemory`], [`CacheError::Shards`]; [`CacheError::Unweighed`] for types that own memory of which the cache
    /// knows nothing, where it has no bound either: it would hold more than it says.
    pub fn build(self) -> Result<EvictableCache<K, V, S>, CacheError> {
        let builder = self.weigh_by_default()?;
        if builder.is_short {
            return Err(CacheError::OutOfMemory);
        }
        Ok(EvictableCache::of(Shared::new(builder.options)?, builder.hasher))
    }
}

impl<K: Eq + 'static, V: 'static, S> core::fmt::Debug for EvictableCacheBuilder<K, V, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EvictableCacheBuilder")
            .field("name", &super::name::text(&self.options.name))
            .finish_non_exhaustive()
    }
}
