//! Guards of a cache's entries, iterators over them, and values that are being filled.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use super::errors::Refusal;
use crate::evictable_cache::entry::bytes::Bytes;
use crate::evictable_cache::entry::header::Content;
use crate::evictable_cache::entry::hold::Hold;
use crate::evictable_cache::entry::typed::Typed;
use crate::evictable_cache::load::fresh::Fresh;
use crate::evictable_cache::shard::walk::Walk;

/// An entry of an [`EvictableCache`](crate::EvictableCache), pinned. It is not evicted while a guard is there. If it is
/// removed or replaced, it lives until its last guard is dropped.
pub struct Entry<'c, K: Eq + 'static, V: 'static>(pub(super) Hold<'c, Typed<K, V>>);

impl<K: Eq + 'static, V: 'static> Entry<'_, K, V> {
    /// The key.
    pub fn key(&self) -> &K {
        self.0.key()
    }

    /// The weight that the entry counts in the cache's bytes.
    pub fn weight(&self) -> usize {
        self.0.header().weight()
    }
}

impl<K: Eq + 'static, V: 'static> Clone for Entry<'_, K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Eq + 'static, V: 'static> Deref for Entry<'_, K, V> {
    type Target = V;
    #[inline]
    fn deref(&self) -> &V {
        self.0.value()
    }
}

impl<K: Eq + fmt::Debug + 'static, V: fmt::Debug + 'static> fmt::Debug for Entry<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("key", self.key()).field("value", &**self).finish()
    }
}

/// All entries of a cache ([`EvictableCache::iter`](crate::EvictableCache::iter)).
pub struct Entries<'c, K: Eq + 'static, V: 'static>(pub(super) Walk<'c, Typed<K, V>>);

impl<'c, K: Eq + 'static, V: 'static> Iterator for Entries<'c, K, V> {
    type Item = Entry<'c, K, V>;
    fn next(&mut self) -> Option<Entry<'c, K, V>> {
        self.0.next().map(Entry)
    }
}

impl<K: Eq + 'static, V: 'static> fmt::Debug for Entries<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").finish_non_exhaustive()
    }
}

/// An entry of a [`ByteCache`](crate::ByteCache), pinned; see [`Entry`](crate::Entry).
#[derive(Clone)]
pub struct ByteEntry<'c>(pub(super) Hold<'c, Bytes>);

impl ByteEntry<'_> {
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// The weight that the entry counts in the cache's bytes.
    pub fn weight(&self) -> usize {
        self.0.header().weight()
    }

    /// The value, to be changed in place. It is aligned to 16 bytes. The cache does not order writes and reads: that is the
    /// program's.
    pub fn as_ptr(&self) -> NonNull<u8> {
        // SAFETY: the guard holds the entry.
        unsafe { Bytes::value_of(self.0.entry()) }.cast()
    }

    /// Gives the guard up without ending it: for C. See [`ByteCache::entry_from_raw`](crate::ByteCache::entry_from_raw).
    pub fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).0.entry().cast()
    }
}

impl Deref for ByteEntry<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.value()
    }
}

impl fmt::Debug for ByteEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteEntry").field("key", &self.key()).field("len", &self.len()).finish_non_exhaustive()
    }
}

/// All entries of a cache ([`ByteCache::iter`](crate::ByteCache::iter)).
pub struct ByteEntries<'c>(pub(super) Walk<'c, Bytes>);

impl<'c> Iterator for ByteEntries<'c> {
    type Item = ByteEntry<'c>;
    fn next(&mut self) -> Option<ByteEntry<'c>> {
        self.0.next().map(ByteEntry)
    }
}

impl fmt::Debug for ByteEntries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteEntries").finish_non_exhaustive()
    }
}

/// A value of a [`ByteCache`](crate::ByteCache) that is being filled in place, and is nobody else's yet. It reads and writes
/// as a slice of bytes, all zeros at first. Dropping it frees it.
pub struct ByteFill<'c>(pub(super) Fresh<'c, Bytes>);

impl<'c> ByteFill<'c> {
    /// The key that the value is for.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Puts the value into the cache, in the place of the key's former one.
    ///
    /// # Errors
    /// Those of [`EvictableCache::insert`](crate::EvictableCache::insert); the value is in the error. In a forked child
    /// [`Refusal::OutOfMemory`] for a value in a zone that is the parent's.
    pub fn publish(mut self) -> Result<ByteEntry<'c>, (Self, Refusal)> {
        self.0.has_value = true;
        self.0.put(None).map(ByteEntry).map_err(|(fresh, why)| (Self(fresh), why))
    }

    /// Gives the value up without freeing it: for C. See [`ByteCache::fill_from_raw`](crate::ByteCache::fill_from_raw).
    pub fn into_raw(self) -> NonNull<u8> {
        self.0.shared.outside.fetch_add(1, Relaxed);
        ManuallyDrop::new(self).0.entry.cast()
    }
}

impl Deref for ByteFill<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the block is this value's alone, and every byte of it was written.
        unsafe { Bytes::value(self.0.entry) }
    }
}

impl DerefMut for ByteFill<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block is this value's alone, every byte of it was written, and the value is borrowed exclusively.
        unsafe { Bytes::value_of(self.0.entry).as_mut() }
    }
}

impl fmt::Debug for ByteFill<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteFill").field("key", &self.key()).field("len", &self.len()).finish_non_exhaustive()
    }
}
