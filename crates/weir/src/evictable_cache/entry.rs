//! Guards of a cache's entries, and entries that are being written back.

use core::fmt;
use core::ops::Deref;

use super::handle;
use super::hold::Hold;
use super::typed::Typed;
use super::walk::Walk;

/// An entry of an [`EvictableCache`](crate::EvictableCache), pinned: it is not evicted while a guard is there, and if it is
/// removed or replaced it lives until its last guard is dropped.
pub struct Entry<'c, K: Eq + 'static, V: 'static>(pub(super) Hold<'c, Typed<K, V>>);

// SAFETY: a guard gives out shared references, and may drop key and value.
unsafe impl<K: Eq + Send + Sync, V: Send + Sync> Send for Entry<'_, K, V> {}
// SAFETY: a shared guard gives out shared references, and may be cloned, so that another thread drops key and value.
unsafe impl<K: Eq + Send + Sync, V: Send + Sync> Sync for Entry<'_, K, V> {}

impl<K: Eq + 'static, V: 'static> Entry<'_, K, V> {
    /// The key.
    pub fn key(&self) -> &K {
        self.0.key()
    }

    /// What the entry counts in the cache's bytes.
    pub fn weight(&self) -> usize {
        self.0.header().weight
    }

    /// Says that the value was changed (through a lock or a cell in it) since it was last written back: it is written back
    /// by the cache's callback before it can be evicted. A change made before this call is in what is written. Returns
    /// `false` if the entry was removed or replaced, or there was no memory to keep it, and so will not be written back.
    ///
    /// May call the callback, when much is dirty.
    ///
    /// # Panics
    /// If the cache was built without [`write_back`](crate::EvictableCacheBuilder::write_back).
    pub fn mark_dirty(&self) -> bool {
        self.0.shared.mark_dirty(&self.0)
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

/// Entries to be written back: an iterator of [`DirtyEntry`].
pub struct WriteBatch<K: Eq + 'static, V: 'static>(pub(super) handle::Batch<Typed<K, V>>);

impl<K: Eq + 'static, V: 'static> WriteBatch<K, V> {
    /// How many are left in it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Eq + 'static, V: 'static> Iterator for WriteBatch<K, V> {
    type Item = DirtyEntry<K, V>;
    fn next(&mut self) -> Option<DirtyEntry<K, V>> {
        self.0.next().map(DirtyEntry)
    }
}

impl<K: Eq + 'static, V: 'static> fmt::Debug for WriteBatch<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// An entry that is being written back, pinned until that is completed: by [`DirtyEntry::written`] or
/// [`DirtyEntry::failed`], on any thread, now or later. Dropping it says that it failed. The cache's end and its flush wait
/// for it, so one that is forgotten makes them wait for ever.
pub struct DirtyEntry<K: Eq + 'static, V: 'static>(handle::Handle<Typed<K, V>>);

impl<K: Eq + 'static, V: 'static> DirtyEntry<K, V> {
    /// The key.
    pub fn key(&self) -> &K {
        self.0.key()
    }

    /// It was written back. If it was marked dirty again meanwhile, it is dirty still.
    pub fn written(self) {
        self.0.complete(true);
    }

    /// It could not be written back, stays dirty and is tried again later.
    pub fn failed(self) {
        self.0.complete(false);
    }
}

impl<K: Eq + 'static, V: 'static> Deref for DirtyEntry<K, V> {
    type Target = V;
    fn deref(&self) -> &V {
        self.0.value()
    }
}

impl<K: Eq + fmt::Debug + 'static, V: 'static> fmt::Debug for DirtyEntry<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirtyEntry").field("key", self.key()).finish_non_exhaustive()
    }
}
