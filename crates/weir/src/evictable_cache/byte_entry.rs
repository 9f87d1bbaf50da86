//! Guards of a byte cache's entries, values that are being filled, and entries that are being written back.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use super::bytes::Bytes;
use super::errors::Refusal;
use super::fresh::Fresh;
use super::handle;
use super::header::Content;
use super::hold::Hold;
use super::walk::Walk;

/// An entry of a [`ByteCache`](crate::ByteCache), pinned; see [`Entry`](crate::Entry).
pub struct ByteEntry<'c>(pub(super) Hold<'c, Bytes>);

// SAFETY: a guard holds bytes, which any thread may read and free.
unsafe impl Send for ByteEntry<'_> {}
// SAFETY: a shared guard reads bytes, and its clones may be dropped anywhere.
unsafe impl Sync for ByteEntry<'_> {}

impl ByteEntry<'_> {
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// What the entry counts in the cache's bytes.
    pub fn weight(&self) -> usize {
        self.0.header().weight
    }

    /// The value, to be changed in place. It is aligned to 16 bytes. The cache does not order writes and reads: that is the
    /// program's.
    pub fn as_ptr(&self) -> NonNull<u8> {
        // SAFETY: the guard holds the entry.
        unsafe { Bytes::value_of(self.0.entry) }.cast()
    }

    /// As [`Entry::mark_dirty`](crate::Entry::mark_dirty).
    ///
    /// # Panics
    /// If the cache was built without [`write_back`](crate::ByteCacheBuilder::write_back).
    pub fn mark_dirty(&self) -> bool {
        self.0.shared.mark_dirty(&self.0)
    }

    /// Gives the guard up without ending it: for C. See [`ByteCache::entry_from_raw`](crate::ByteCache::entry_from_raw).
    pub fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).0.entry.cast()
    }
}

impl Clone for ByteEntry<'_> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
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

// SAFETY: it owns a block of bytes.
unsafe impl Send for ByteFill<'_> {}
// SAFETY: a shared reference reads only.
unsafe impl Sync for ByteFill<'_> {}

impl<'c> ByteFill<'c> {
    /// The key that it is for.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Puts the value into the cache, in the place of the key's former one.
    ///
    /// # Errors
    /// As [`EvictableCache::insert`](crate::EvictableCache::insert); the value is in the error.
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

/// Entries to be written back: an iterator of [`DirtyBytes`].
pub struct ByteWriteBatch(pub(super) handle::Batch<Bytes>);

impl ByteWriteBatch {
    /// How many are left in it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Iterator for ByteWriteBatch {
    type Item = DirtyBytes;
    fn next(&mut self) -> Option<DirtyBytes> {
        self.0.next().map(DirtyBytes)
    }
}

impl fmt::Debug for ByteWriteBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteWriteBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// An entry that is being written back, pinned until that is completed; see [`DirtyEntry`](crate::DirtyEntry).
pub struct DirtyBytes(pub(super) handle::Handle<Bytes>);

impl DirtyBytes {
    /// The key.
    pub fn key(&self) -> &[u8] {
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

    /// Gives the handle up without completing it: for C. See
    /// [`ByteCache::dirty_from_raw`](crate::ByteCache::dirty_from_raw).
    pub fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).0.entry.cast()
    }
}

impl Deref for DirtyBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.value()
    }
}

impl fmt::Debug for DirtyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirtyBytes").field("key", &self.key()).finish_non_exhaustive()
    }
}
