//! Guards that keep their cache as well as their entry.

use alloc::sync::Arc;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;

use super::byte_cache::ByteCache;
use super::cache::EvictableCache;
use super::guards::{ByteEntry, Entry};
use super::hasher::{Equivalent, SeededHash};
use crate::evictable_cache::entry::bytes::Bytes;
use crate::evictable_cache::entry::header::{Content, Header};
use crate::evictable_cache::entry::hold::Hold;
use crate::evictable_cache::entry::typed::Typed;
use crate::evictable_cache::shared::Shared;

/// A kind of cache.
trait Cache {
    /// What its entries are.
    type Content: Content;
    /// Its state.
    fn shared(&self) -> &Shared<Self::Content>;
}

impl<K: Eq + 'static, V: 'static, S> Cache for EvictableCache<K, V, S> {
    type Content = Typed<K, V>;
    fn shared(&self) -> &Shared<Typed<K, V>> {
        &self.shared
    }
}

impl Cache for ByteCache {
    type Content = Bytes;
    fn shared(&self) -> &Shared<Bytes> {
        &self.shared
    }
}

/// A [`Hold`] that has a handle of its cache in place of a borrow.
struct OwnedHold<H: Cache> {
    /// An entry of the cache, of which this has a hold.
    entry: NonNull<Header>,
    /// A field, so that its drop follows that of the hold, also where that panics.
    cache: Arc<H>,
}

// SAFETY: it gives out shared references, may drop key and value, and may end the cache, on whichever thread has it. The cache
// may be sent and shared where its keys and values may.
unsafe impl<H: Cache + Send + Sync> Send for OwnedHold<H> {}
// SAFETY: a shared hold gives out shared references, and may be cloned, so that another thread has one of its own.
unsafe impl<H: Cache + Send + Sync> Sync for OwnedHold<H> {}

impl<H: Cache> OwnedHold<H> {
    /// # Panics
    /// If the entry is of another cache.
    fn new(hold: Hold<'_, H::Content>, cache: &Arc<H>) -> Self {
        assert!(hold.is_of(cache.shared()), "an entry is owned with a handle of its own cache");
        Self { cache: Arc::clone(cache), entry: hold.into_entry() }
    }

    fn key(&self) -> &<H::Content as Content>::Key {
        // SAFETY: an entry of the cache has its key until it is freed, which the hold delays.
        unsafe { H::Content::key(self.entry) }
    }

    fn value(&self) -> &<H::Content as Content>::Value {
        // SAFETY: an entry of the cache has its value until it is freed, which the hold delays.
        unsafe { H::Content::value(self.entry) }
    }

    fn header(&self) -> &Header {
        // SAFETY: an entry is valid while it is held.
        unsafe { self.entry.as_ref() }
    }
}

impl<H: Cache> Clone for OwnedHold<H> {
    fn clone(&self) -> Self {
        let cache = Arc::clone(&self.cache);
        // SAFETY: an entry of this cache with key and value; this has a hold, which does not end here.
        let own = ManuallyDrop::new(unsafe { Hold::new(cache.shared(), self.entry) });
        let entry = Hold::clone(&own).into_entry();
        Self { entry, cache }
    }
}

impl<H: Cache> Drop for OwnedHold<H> {
    fn drop(&mut self) {
        // SAFETY: an entry of this cache with key and value; the hold that this had is the one that ends here.
        drop(unsafe { Hold::new(self.cache.shared(), self.entry) });
    }
}

/// An [`Entry`] that borrows nothing: it has a handle of the cache, which lives until the last such guard is dropped.
/// [`EvictableCache::get_owned`] and [`Entry::into_owned`] make one. A value that has a guard of its own cache keeps that alive
/// until it is taken out.
///
/// A value that is bytes can be the body of a response without a copy:
///
/// ```
/// use std::sync::Arc;
/// use bytes::Bytes;
///
/// let pages = Arc::new(weir::EvictableCache::<u32, Vec<u8>>::builder().build().unwrap());
/// let page = pages.get_or_insert_with(1, || b"<html>".to_vec()).into_owned(&pages);
/// let at = page.as_ptr();
/// let body = Bytes::from_owner(page);
/// assert_eq!((&body[..], body.as_ptr()), (&b"<html>"[..], at));
/// ```
pub struct OwnedEntry<K: Eq + 'static, V: 'static, S = SeededHash>(OwnedHold<EvictableCache<K, V, S>>);

impl<K: Eq + 'static, V: 'static> Entry<'_, K, V> {
    /// The guard as one that borrows nothing, with another handle of the cache.
    ///
    /// # Panics
    /// If the entry is of another cache.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let cache = Arc::new(weir::EvictableCache::<u32, u32>::builder().build().unwrap());
    /// let nine = cache.insert(3, 9).unwrap().into_owned(&cache);
    /// assert_eq!((*nine.key(), *nine), (3, 9));
    /// ```
    pub fn into_owned<S>(self, cache: &Arc<EvictableCache<K, V, S>>) -> OwnedEntry<K, V, S> {
        OwnedEntry(OwnedHold::new(self.0, cache))
    }
}

impl<K: Eq + Hash + 'static, V: 'static, S: BuildHasher> EvictableCache<K, V, S> {
    /// Gets the entry of a key, pinned by a guard that has a handle of the cache. The guard is for other threads, tasks and
    /// bodies of responses, which outlive the caller. A hit counts as a use. [`Entry::into_owned`] makes such a guard of any
    /// other.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let pages = Arc::new(weir::EvictableCache::<String, Vec<u8>>::builder().build().unwrap());
    /// drop(pages.insert("/".into(), b"<html>".to_vec()));
    /// let page = pages.get_owned("/").unwrap();
    /// drop(pages);
    /// assert_eq!(std::thread::spawn(move || page.len()).join().unwrap(), 6);
    /// ```
    pub fn get_owned<Q>(self: &Arc<Self>, key: &Q) -> Option<OwnedEntry<K, V, S>>
    where
        Q: Equivalent<K> + Hash + ?Sized,
    {
        self.get(key).map(|entry| entry.into_owned(self))
    }
}

impl<K: Eq + 'static, V: 'static, S> OwnedEntry<K, V, S> {
    /// The key.
    pub fn key(&self) -> &K {
        self.0.key()
    }

    /// The weight that the entry counts in the cache's bytes.
    pub fn weight(&self) -> usize {
        self.0.header().weight()
    }

    /// The cache that the entry is of.
    pub fn cache(&self) -> &Arc<EvictableCache<K, V, S>> {
        &self.0.cache
    }
}

impl<K: Eq + 'static, V: 'static, S> Clone for OwnedEntry<K, V, S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Eq + 'static, V: 'static, S> Deref for OwnedEntry<K, V, S> {
    type Target = V;
    fn deref(&self) -> &V {
        self.0.value()
    }
}

impl<K: Eq + 'static, V: AsRef<T> + 'static, S, T: ?Sized> AsRef<T> for OwnedEntry<K, V, S> {
    fn as_ref(&self) -> &T {
        (**self).as_ref()
    }
}

impl<K: Eq + fmt::Debug + 'static, V: fmt::Debug + 'static, S> fmt::Debug for OwnedEntry<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedEntry").field("key", self.key()).field("value", &**self).finish()
    }
}

/// A [`ByteEntry`] that borrows nothing, as [`OwnedEntry`] is an [`Entry`]: [`ByteCache::get_owned`] and
/// [`ByteEntry::into_owned`] make one. It can be the body of a response without a copy:
///
/// ```
/// use std::sync::Arc;
/// use bytes::Bytes;
///
/// let pages = Arc::new(weir::ByteCache::builder().max_bytes(1 << 20).build().unwrap());
/// let page = pages.insert(b"/", b"<html>").unwrap().into_owned(&pages);
/// drop(pages);
/// assert_eq!(&Bytes::from_owner(page)[..], b"<html>");
/// ```
#[derive(Clone)]
pub struct OwnedByteEntry(OwnedHold<ByteCache>);

impl ByteEntry<'_> {
    /// The guard as one that borrows nothing, with another handle of the cache.
    ///
    /// # Panics
    /// If the entry is of another cache.
    pub fn into_owned(self, cache: &Arc<ByteCache>) -> OwnedByteEntry {
        OwnedByteEntry(OwnedHold::new(self.0, cache))
    }
}

impl ByteCache {
    /// Gets the entry of a key, pinned by a guard that has a handle of the cache; see
    /// [`EvictableCache::get_owned`](crate::EvictableCache::get_owned).
    pub fn get_owned(self: &Arc<Self>, key: &[u8]) -> Option<OwnedByteEntry> {
        self.get(key).map(|entry| entry.into_owned(self))
    }
}

impl OwnedByteEntry {
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// The weight that the entry counts in the cache's bytes.
    pub fn weight(&self) -> usize {
        self.0.header().weight()
    }

    /// The cache that the entry is of.
    pub fn cache(&self) -> &Arc<ByteCache> {
        &self.0.cache
    }
}

impl Deref for OwnedByteEntry {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.value()
    }
}

impl AsRef<[u8]> for OwnedByteEntry {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for OwnedByteEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedByteEntry").field("key", &self.key()).field("len", &self.len()).finish_non_exhaustive()
    }
}
