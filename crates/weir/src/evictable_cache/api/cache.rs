//! The typed cache.

use alloc::vec::Vec;
use core::alloc::Layout;
use core::convert::Infallible;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::ptr::NonNull;

use super::common::{Owner, common_methods};
use super::errors::{InsertError, Refusal};
use super::guards::{Entries, Entry};
use super::hasher::{Equivalent, SeededHash};
use crate::evictable_cache::entry::header::Header;
use crate::evictable_cache::entry::typed::{Block, Typed};
use crate::evictable_cache::load::fresh::Fresh;

/// A cache of values by key that shares the process's memory with everything else. It grows while memory is free, and yields when
/// memory is short.
///
/// A cache is best where [`Weir`](crate::Weir) is the program's global allocator. Then what is evicted is released at once, and
/// what values take is known to the byte. On glibc's malloc and on jemalloc evictions for pressure, and those by
/// [`evict`](Self::evict), are followed by that allocator's own trim, which costs it time. Other allocators release what they like:
/// there a [bound](crate::EvictableCacheBuilder::max_bytes) belongs to the cache. What has no memory of its own (and all of a
/// [`ByteCache`](crate::ByteCache)) lies in Weir's heap whichever allocator the program has.
///
/// ```
/// use weir::EvictableCache;
///
/// let pages = EvictableCache::<String, Vec<u8>>::builder()
///     .name("pages")
///     .max_bytes(64 << 20)
///     .weigher(|url, page| url.len() + page.len())
///     .build()
///     .unwrap();
/// let page = pages.get_or_insert_with("/index".to_string(), || b"<html>".to_vec());
/// assert_eq!(&page[..], b"<html>");
/// drop(page);
/// assert!(pages.get("/index").is_some() && pages.get("/other").is_none());
/// // Memory is short: 1 MiB is wanted, and all that is there goes.
/// assert_eq!(pages.evict(1 << 20), 12);
/// assert!(pages.get("/index").is_none());
/// ```
///
/// # Locks
/// No lock of the cache is held while code of the program's runs: closures, futures, wakers, weigher, listener, `Drop`. Only what
/// compares keys runs under a shard's lock: `Eq`, [`Equivalent`](crate::Equivalent) and `Borrow`. It must not use an evictable
/// cache, nor wait for a thread that does: a debug build panics where it does, else it may wait for itself. Nor should it allocate:
/// where memory is short that waits for a second for this shard's eviction, and may fail beside a full cache.
///
/// A panic in any of them leaves the cache whole; one as it is dropped drops the rest, of which the listener is not told. So does
/// one under pressure, with the rest of that eviction.
///
/// The end of a cache waits for an eviction under pressure that is under way on a thread of Weir's. So who drops the last handle
/// must not hold what the listener, or the `Drop` of a key or value, waits for.
///
/// # fork
/// A forked child has the cache as it was; an empty one where entries lie in a [zone](crate::zone) that is the parent's. Values
/// that other threads or tasks of the parent were computing are computed by who wants them first. Futures of the parent that
/// waited for one are not woken in the child.
///
/// The cache is reclaimed there too, from the child's first insertion into any evictable cache on. That makes the threads that call
/// caches, and what else the parent registered, as [`resume_after_fork`](crate::pressure::resume_after_fork) does. So a child that
/// executes a program has no thread of Weir's. One that may make no thread later, or only looks keys up, calls that itself.
///
/// A load or an insertion in whose own code the process forks panics in the child where the entry to come lies in such a zone.
///
/// A guard of an entry in such a zone may be cloned and dropped in the child, which changes nothing. It pins nothing there: its key
/// and value may be read only while the parent keeps a guard of its own. In huge pages of the pool they are not there at all.
///
/// # Where Weir does not run
/// On macOS, FreeBSD and Windows the cache is a plain one, with a bound and without reclaim. A forked child must not use it, as
/// another thread may have held a lock of it. A debug build does not notice `Eq` that uses a cache.
pub struct EvictableCache<K: Eq + 'static, V: 'static, S = SeededHash> {
    pub(super) shared: Owner<Typed<K, V>>,
    pub(super) hasher: S,
}

impl<K: Eq + 'static, V: 'static, S> EvictableCache<K, V, S> {
    common_methods!();
}

impl<K: Eq + Hash + 'static, V: 'static, S: BuildHasher> EvictableCache<K, V, S> {
    #[inline]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        self.shared.spread(self.hasher.hash_one(key))
    }

    /// The entry of a key, pinned; that counts as a use.
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<Entry<'_, K, V>>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        self.shared.get(self.hash(key), |other| key.equivalent(other)).map(Entry)
    }

    /// The entries of several keys, each as by [`EvictableCache::get`].
    ///
    /// ```
    /// let cache = weir::EvictableCache::<String, u32>::builder().build().unwrap();
    /// drop(cache.insert("one".into(), 1));
    /// let found = cache.get_many(["one", "two"]).map(|entry| entry.map(|entry| *entry));
    /// assert_eq!(found, [Some(1), None]);
    /// ```
    pub fn get_many<Q, const N: usize>(&self, keys: [&Q; N]) -> [Option<Entry<'_, K, V>>; N]
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        keys.map(|key| self.get(key))
    }

    /// A copy of a key's value; that counts as a use. For values that are small it is the cheapest look-up, as nothing is
    /// pinned.
    ///
    /// ```
    /// let ports = weir::EvictableCache::<&str, u16>::builder().build().unwrap();
    /// drop(ports.insert("http", 80));
    /// assert_eq!((ports.get_copied("http"), ports.get_copied("gopher")), (Some(80), None));
    /// ```
    #[inline]
    pub fn get_copied<Q>(&self, key: &Q) -> Option<V>
    where
        Q: Equivalent<K> + Hash + ?Sized,
        V: Copy,
    {
        // SAFETY: an entry of the cache, under its shard's lock: it has a value, to which nothing has an exclusive reference.
        let copy = |entry| unsafe { *Typed::<K, V>::value_at(entry) };
        self.shared.look_up(self.hash(key), |other| key.equivalent(other), copy)
    }

    /// Whether a key is there; that counts as nothing.
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        self.shared.contains(self.hash(key), |other| key.equivalent(other))
    }

    /// Puts a value in, in the place of the key's former one, if there is one: whoever pins that keeps it.
    ///
    /// What a full cache refuses for its weight ([`Favour::Entries`](crate::Favour::Entries)) is its guard's alone, and the listener
    /// is told.
    ///
    /// # Errors
    /// The value is not taken, and is in the error. Either it is larger than what the cache may hold, or all that would have to
    /// go is pinned, or there is no memory. The key's former value leaves all the same, as it is out of date.
    ///
    /// ```
    /// use weir::{EvictableCache, Refusal};
    ///
    /// let cache = EvictableCache::<u32, Vec<u8>>::builder().max_bytes(1000).weigher(|_, v| v.len()).build().unwrap();
    /// let error = cache.insert(1, vec![0; 2000]).unwrap_err();
    /// assert_eq!(error.refusal, Refusal::TooLarge { weight: 2000, target: 1000 });
    /// assert_eq!(error.value.len(), 2000);
    /// ```
    pub fn insert(&self, key: K, value: V) -> Result<Entry<'_, K, V>, InsertError<V>> {
        let hash = self.hash(&key);
        let mut fresh = match self.fresh(hash, key) {
            Ok(fresh) => fresh,
            Err(key) => {
                self.shared.displace(hash, |other| *other == key);
                let (weight, target) = (size_of::<Block<K, V>>(), self.shared.place.largest());
                let is_large = weight > target;
                self.shared.reject(&key, &value);
                let refusal = if is_large { Refusal::TooLarge { weight, target } } else { Refusal::OutOfMemory };
                drop(key);
                return Err(InsertError { refusal, value });
            }
        };
        fresh.write(value);
        fresh.has_value = true;
        fresh.put(None).map(Entry).map_err(|(mut fresh, refusal)| {
            // In a child that was forked meanwhile the value is the parent's.
            fresh.assert_own();
            fresh.has_value = false;
            // SAFETY: the value is there, and is not dropped with the entry any more.
            let value = unsafe { Typed::<K, V>::value_at(fresh.entry).read() };
            drop(fresh);
            InsertError { refusal, value }
        })
    }

    /// The entry of a key, or that of the value that `compute` returns. Other threads that want the same key meanwhile wait for
    /// it. If `compute` panics, or the time of its value is over as it comes, the next of them computes.
    ///
    /// A load gives an entry in every case. Where the cache does not keep it ([`Refusal`] says why that may be), it is held by
    /// its guard alone. The next call for the key computes it again.
    ///
    /// Where the key is removed, or another value is put in, while `compute` runs, what it returns may be out of date. The
    /// cache does not keep it: a removed key stays removed, and another value stays. Whoever waits finds that value, or computes
    /// anew. What `compute` does so by itself, on its own thread, comes before its value, which replaces it.
    ///
    /// # Panics
    /// If `compute` gets or computes the same key by this function. Also if it asks for a key whose value another thread
    /// computes, and that thread waits for this one, directly or through others.
    ///
    /// ```
    /// let cache = weir::EvictableCache::<u32, Vec<u8>>::builder().max_bytes(1000).weigher(|_, v| v.len()).build().unwrap();
    /// let large = cache.get_or_insert_with(1, || vec![7; 2000]);
    /// assert_eq!((large[1999], cache.contains(&1)), (7, false));
    /// ```
    pub fn get_or_insert_with(&self, key: K, compute: impl FnOnce() -> V) -> Entry<'_, K, V> {
        match self.try_get_or_insert_with(key, || Ok::<V, Infallible>(compute())) {
            Ok(entry) => entry,
        }
    }

    /// [`EvictableCache::get_or_insert_with`] of a closure that can fail: its error is returned to the caller alone, and
    /// the next who waits computes.
    ///
    /// So those who wait for a value that cannot be had fail one after another. Where each failure takes a second the hundredth
    /// caller has its own after 100. Make a failure a value that lives for a moment
    /// ([`expire_after`](crate::EvictableCacheBuilder::expire_after)) where all are to have it at once.
    ///
    /// # Errors
    /// The closure's own.
    ///
    /// # Panics
    /// If `compute` gets or computes the same key by this function. Also if it asks for a key whose value another thread
    /// computes, and that thread waits for this one, directly or through others.
    pub fn try_get_or_insert_with<E>(
        &self,
        key: K,
        compute: impl FnOnce() -> Result<V, E>,
    ) -> Result<Entry<'_, K, V>, E> {
        let hash = self.hash(&key);
        if let Some(hold) = self.shared.get(hash, |other| *other == key) {
            // By name, while the hold is in a variable: a panic drops that, and not what a function gives.
            drop((key, compute));
            return Ok(Entry(hold));
        }
        let fresh = self.fresh(hash, key).unwrap_or_else(|key| self.spare(hash, key));
        let fill = |fresh: &mut Fresh<'_, Typed<K, V>>| {
            fresh.write(compute()?);
            Ok(())
        };
        self.shared.get_or_compute(fresh, fill).map(Entry)
    }

    /// Puts in the value that `compute` makes of the key's present one, or of none. Threads that do so for one key take turns, and
    /// each finds the value of the one before. Tasks and threads that compute the key's value because it was not there are in that
    /// queue, too. Look-ups find the present value meanwhile.
    ///
    /// It gives an entry in every case, as [`EvictableCache::get_or_insert_with`] does. Where the cache does not keep it the key's
    /// former value leaves all the same. What is removed or put in by others while `compute` runs counts as later, and stays so. So
    /// does a [`retain`](Self::retain) that begins meanwhile, if the key had no value. A value that left for memory is not there
    /// for `compute`, so this is for what may start anew.
    ///
    /// # Panics
    /// As [`EvictableCache::get_or_insert_with`].
    ///
    /// ```
    /// let requests = weir::EvictableCache::<&str, u32>::builder().build().unwrap();
    /// for address in ["::1", "::2", "::1"] {
    ///     requests.upsert_with(address, |count| count.map_or(1, |count| count + 1));
    /// }
    /// assert_eq!((requests.get_copied("::1"), requests.get_copied("::2")), (Some(2), Some(1)));
    /// ```
    #[doc(alias = "entry")]
    #[doc(alias = "and_upsert_with")]
    pub fn upsert_with(&self, key: K, compute: impl FnOnce(Option<&V>) -> V) -> Entry<'_, K, V> {
        match self.try_upsert_with(key, |former| Ok::<V, Infallible>(compute(former))) {
            Ok(entry) => entry,
        }
    }

    /// [`EvictableCache::upsert_with`] of a closure that can fail: its error is returned, and the present value stays.
    ///
    /// # Errors
    /// The closure's own.
    ///
    /// # Panics
    /// As [`EvictableCache::get_or_insert_with`].
    pub fn try_upsert_with<E>(
        &self,
        key: K,
        compute: impl FnOnce(Option<&V>) -> Result<V, E>,
    ) -> Result<Entry<'_, K, V>, E> {
        let hash = self.hash(&key);
        let fresh = self.fresh(hash, key).unwrap_or_else(|key| self.spare(hash, key));
        let fill = |fresh: &mut Fresh<'_, Typed<K, V>>, former: Option<&V>| {
            fresh.write(compute(former)?);
            Ok(())
        };
        self.shared.compute_anew(fresh, fill).map(Entry)
    }

    /// Takes a key's entry out; whether there was one whose time was not over. Guards of the entry stay valid. A value of the
    /// key that is being computed is not kept ([`EvictableCache::get_or_insert_with`]).
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        self.shared.remove(self.hash(key), |other| key.equivalent(other))
    }

    /// Takes out the entries for which `is_kept` does not hold. The closure is called under no lock, and may use the cache;
    /// entries that are put in meanwhile may come or not.
    ///
    /// Values that are being computed as this begins, of keys that have none, are not kept
    /// ([`EvictableCache::get_or_insert_with`]): what they were made of may have changed by then. Who waits for one computes it
    /// again.
    ///
    /// ```
    /// let cache = weir::EvictableCache::<u32, u32>::builder().build().unwrap();
    /// (0..100).for_each(|key| drop(cache.insert(key, key * key)));
    /// cache.retain(|key, _| key % 10 == 0);
    /// assert_eq!(cache.iter().map(|entry| *entry).sum::<u32>(), 28_500);
    /// ```
    #[doc(alias = "invalidate_entries_if")]
    pub fn retain(&self, is_kept: impl FnMut(&K, &V) -> bool) {
        self.shared.retain(is_kept);
    }

    /// All entries, pinned as they come, in no particular order; that counts as no use of them. What is there all the time comes
    /// once, what is put in or removed meanwhile may come or not. Up to 16 entries are pinned at a time.
    pub fn iter(&self) -> Entries<'_, K, V> {
        Entries(self.shared.walk())
    }

    /// Copies the keys of up to `count` entries that are most worth keeping, the hottest first. The order goes by how often they
    /// were used lately, as eviction does. A program can write them out, and fill its cache by them at its next start. That
    /// counts as no use. O(entries), each of which takes its shard's lock for a moment.
    ///
    /// ```
    /// use std::fs;
    /// use weir::EvictableCache;
    ///
    /// fn pages() -> EvictableCache<String, String> {
    ///     EvictableCache::builder().max_bytes(1 << 20).build().unwrap()
    /// }
    /// fn fetch(url: &str) -> String {
    ///     format!("<html>{url}")
    /// }
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let file = std::env::temp_dir().join(format!("hot-pages-{}", std::process::id()));
    /// let cache = pages();
    /// for url in ["/", "/a", "/b", "/", "/b", "/"] {
    ///     cache.get_or_insert_with(url.into(), || fetch(url));
    /// }
    /// // As the program ends, or every few minutes.
    /// fs::write(&file, cache.hot_keys(2).join("\n"))?;
    ///
    /// // As it starts again: the hottest last, so that none that is colder takes its place.
    /// let cache = pages();
    /// for url in fs::read_to_string(&file)?.lines().rev() {
    ///     cache.get_or_insert_with(url.into(), || fetch(url));
    /// }
    /// assert!(cache.contains("/") && cache.contains("/b") && !cache.contains("/a"));
    /// # fs::remove_file(file)
    /// # }
    /// ```
    pub fn hot_keys(&self, count: usize) -> Vec<K>
    where
        K: Clone,
    {
        self.shared.hottest(count, K::clone)
    }

    /// A block with the key in it; the key, where there is no memory.
    pub(super) fn fresh(&self, hash: u32, key: K) -> Result<Fresh<'_, Typed<K, V>>, K> {
        let layout = Layout::new::<Block<K, V>>();
        let is_possible = layout.size() <= self.shared.place.largest();
        match is_possible.then(|| Fresh::alloc(&self.shared, hash, layout)).flatten() {
            // SAFETY: a fresh block of this layout.
            Some(entry) => Ok(unsafe { self.with_key(entry, key) }),
            None => Err(key),
        }
    }

    /// A block of the program's allocator with the key in it; without memory the process ends, as by every `Box`.
    #[cold]
    pub(super) fn spare(&self, hash: u32, key: K) -> Fresh<'_, Typed<K, V>> {
        let layout = Layout::new::<Block<K, V>>();
        let entry = Fresh::<Typed<K, V>>::alloc_spare(hash, layout);
        // SAFETY: a fresh block of this layout.
        unsafe { self.with_key(entry.unwrap_or_else(|| alloc::alloc::handle_alloc_error(layout)), key) }
    }

    /// # Safety
    /// The block is fresh, and a `Block<K, V>`.
    unsafe fn with_key(&self, entry: NonNull<Header>, key: K) -> Fresh<'_, Typed<K, V>> {
        // SAFETY: the caller's promise; the key is there once it is written.
        unsafe {
            Typed::<K, V>::key_at(entry).write(key);
            Fresh::new(&self.shared, entry)
        }
    }
}

impl<'c, K: Eq + Hash + 'static, V: 'static, S: BuildHasher> IntoIterator for &'c EvictableCache<K, V, S> {
    type Item = Entry<'c, K, V>;
    type IntoIter = Entries<'c, K, V>;
    fn into_iter(self) -> Entries<'c, K, V> {
        self.iter()
    }
}

impl<K: Eq + 'static, V: 'static, S> fmt::Debug for EvictableCache<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvictableCache").field("name", &self.name()).field("len", &self.len()).finish_non_exhaustive()
    }
}
