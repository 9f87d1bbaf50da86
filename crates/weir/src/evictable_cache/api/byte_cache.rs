//! The cache of bytes.

use alloc::vec::Vec;
use core::fmt;
use core::hash::BuildHasher;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use super::common::{Owner, common_methods};
use super::errors::Refusal;
use super::guards::{ByteEntries, ByteEntry, ByteFill};
use super::hasher::SeededHash;
use crate::evictable_cache::entry::bytes::Bytes;
use crate::evictable_cache::entry::header::Header;
use crate::evictable_cache::entry::hold::Hold;
use crate::evictable_cache::load::fresh::Fresh;

/// An [`EvictableCache`](crate::EvictableCache) of which key and value are bytes: a value has its length from its insertion
/// on, and is filled in place. What is said there holds here.
///
/// ```
/// use weir::ByteCache;
///
/// let blocks = ByteCache::builder().name("blocks").max_bytes(16 << 20).build().unwrap();
/// let key = 7u64.to_le_bytes();
/// let mut block = blocks.fill(&key, 4096).unwrap();
/// block[..5].copy_from_slice(b"hello");
/// drop(block.publish().unwrap());
/// assert_eq!(&blocks.get(&key).unwrap()[..5], b"hello");
///
/// // Once for all who want it; an error is the caller's.
/// let read = |block: &mut [u8]| { block.fill(1); Ok::<(), std::io::Error>(()) };
/// assert_eq!(blocks.get_or_fill(b"other", 512, read).unwrap().unwrap()[511], 1);
/// ```
pub struct ByteCache {
    pub(crate) shared: Owner<Bytes>,
    pub(super) hasher: SeededHash,
}

impl ByteCache {
    #[inline]
    fn hash(&self, key: &[u8]) -> u32 {
        self.shared.spread(self.hasher.hash_one(key))
    }

    common_methods!();

    /// The entry of a key, pinned; that counts as a use.
    pub fn get(&self, key: &[u8]) -> Option<ByteEntry<'_>> {
        self.shared.get(self.hash(key), |other| other == key).map(ByteEntry)
    }

    /// Whether a key is there; that counts as nothing.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.shared.contains(self.hash(key), |other| other == key)
    }

    /// A value of `len` zeros for a key, to be filled and put in by [`ByteFill::publish`].
    ///
    /// # Errors
    /// [`Refusal::OutOfMemory`]; [`Refusal::TooLarge`] for more than the cache may ever hold. The key's former value leaves then,
    /// as by a refused [`EvictableCache::insert`](crate::EvictableCache::insert).
    pub fn fill(&self, key: &[u8], len: usize) -> Result<ByteFill<'_>, Refusal> {
        let fresh = self.begin_new(key, len)?;
        // SAFETY: the block is the fresh entry's alone.
        Bytes::zeroed(unsafe { Bytes::room(fresh.entry) });
        Ok(ByteFill(fresh))
    }

    /// [`ByteCache::fill`] and [`ByteFill::publish`] of a copy.
    ///
    /// # Errors
    /// Those of [`EvictableCache::insert`](crate::EvictableCache::insert).
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<ByteEntry<'_>, Refusal> {
        let fresh = self.begin_new(key, value.len()).inspect_err(|_| self.shared.reject(key, value))?;
        // SAFETY: the block is the fresh entry's alone, and has room for a value of this length.
        unsafe {
            Bytes::value_of(fresh.entry).cast().copy_from_nonoverlapping(NonNull::from(value).cast::<u8>(), value.len())
        };
        ByteFill(fresh).publish().map_err(|(_, why)| why)
    }

    /// Gets the entry of a key, or that of a value of `len` bytes that `fill` fills. `fill` runs once for all that want the
    /// key, as in [`EvictableCache::try_get_or_insert_with`](crate::EvictableCache::try_get_or_insert_with).
    ///
    /// An entry that the cache does not keep is held by its guard alone.
    ///
    /// # Errors
    /// The closure's own outside; inside that there is no memory for so many bytes, neither in the cache's place nor for the
    /// program.
    ///
    /// # Panics
    /// If `fill` wants the same key by this function.
    pub fn get_or_fill<E>(
        &self,
        key: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Result<ByteEntry<'_>, Refusal>, E> {
        let (hash, is_it) = (self.hash(key), |other: &[u8]| other == key);
        // A block is for who fills it: it may be large. Who waits for another needs none.
        let found = match self.shared.get_or_see(hash, is_it) {
            Ok(hold) => Some(hold),
            Err(true) => self.shared.follow(hash, is_it),
            Err(false) => None,
        };
        if let Some(hold) = found {
            // By name, while the hold is in a variable: a panic drops that, and not what a function gives.
            drop(fill);
            return Ok(Ok(ByteEntry(hold)));
        }
        let fresh = match self.begin_load(hash, key, len) {
            Ok(fresh) => fresh,
            Err(why) => return Ok(Err(why)),
        };
        // SAFETY: the block is the fresh entry's alone.
        let fill = |fresh: &mut Fresh<'_, Bytes>| fill(Bytes::zeroed(unsafe { Bytes::room(fresh.entry) }));
        Ok(Ok(ByteEntry(self.shared.get_or_compute(fresh, fill)?)))
    }

    /// [`ByteCache::get_or_fill`] for tasks of any runtime: what is said of
    /// [`EvictableCache::get_or_insert_async`](crate::EvictableCache::get_or_insert_async) holds here.
    ///
    /// # Errors
    /// Those of [`ByteCache::get_or_fill`].
    ///
    /// # Panics
    /// As [`EvictableCache::get_or_insert_async`](crate::EvictableCache::get_or_insert_async).
    ///
    /// ```
    /// use tokio::io::{AsyncRead, AsyncReadExt};
    /// use weir::{ByteCache, ByteEntry};
    ///
    /// async fn block(blocks: &ByteCache, number: u64, mut disk: impl AsyncRead + Unpin) -> ByteEntry<'_> {
    ///     let read = async |block: &mut [u8]| disk.read_exact(block).await.map(|_| ());
    ///     blocks.get_or_fill_async(&number.to_le_bytes(), 4096, read).await.unwrap().unwrap()
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let blocks = ByteCache::builder().max_bytes(16 << 20).build().unwrap();
    /// assert_eq!(block(&blocks, 7, &[1; 4096][..]).await[4095], 1);
    /// assert_eq!(block(&blocks, 7, tokio::io::empty()).await[4095], 1);
    /// # }
    /// ```
    pub async fn get_or_fill_async<E>(
        &self,
        key: &[u8],
        len: usize,
        fill: impl AsyncFnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Result<ByteEntry<'_>, Refusal>, E> {
        let (hash, is_it) = (self.hash(key), |other: &[u8]| other == key);
        // As in `get_or_fill`.
        let found = match self.shared.get_or_see(hash, is_it) {
            Ok(hold) => Some(hold),
            Err(true) => self.shared.follow_async(hash, is_it).await,
            Err(false) => None,
        };
        if let Some(hold) = found {
            // By name, while the hold is in a variable: a panic drops that, and not what a function gives.
            drop(fill);
            return Ok(Ok(ByteEntry(hold)));
        }
        let fresh = match self.begin_load(hash, key, len) {
            Ok(fresh) => fresh,
            Err(why) => return Ok(Err(why)),
        };
        // SAFETY: the block is the fresh entry's alone. Nobody reads the value before the future below has ended, and what `fill`
        // made of the reference is dropped by then. `get_or_load` drops a future that has not ended before the entry.
        let room = unsafe { Bytes::room(fresh.entry) };
        let load = async move { fill(Bytes::zeroed(room)).await };
        Ok(Ok(ByteEntry(self.shared.get_or_load(fresh, load, |_, ()| ()).await?)))
    }

    /// Takes a key's entry out; whether there was one whose time was not over. Guards of the entry stay valid.
    pub fn remove(&self, key: &[u8]) -> bool {
        self.shared.remove(self.hash(key), |other| other == key)
    }

    /// Takes out the entries for which `is_kept` does not hold; see
    /// [`EvictableCache::retain`](crate::EvictableCache::retain).
    pub fn retain(&self, is_kept: impl FnMut(&[u8], &[u8]) -> bool) {
        self.shared.retain(is_kept);
    }

    /// All entries, pinned as they come; see [`EvictableCache::iter`](crate::EvictableCache::iter).
    pub fn iter(&self) -> ByteEntries<'_> {
        ByteEntries(self.shared.walk())
    }

    /// Copies of the keys most worth keeping, the hottest first; see
    /// [`EvictableCache::hot_keys`](crate::EvictableCache::hot_keys).
    pub fn hot_keys(&self, count: usize) -> Vec<Vec<u8>> {
        self.shared.hottest(count, <[u8]>::to_vec)
    }

    /// Whether guards pin entries, in the cache or out of it, or values are being filled that were given up for C
    /// ([`ByteFill::into_raw`]), or a call of the program's is in the listener. O(entries).
    pub fn is_in_use(&self) -> bool {
        self.shared.is_in_use()
    }

    /// Turns a guard back into a value that [`ByteEntry::into_raw`] gave up.
    ///
    /// # Safety
    /// The value is one of this cache's, and is turned back once.
    pub unsafe fn entry_from_raw(&self, entry: NonNull<u8>) -> ByteEntry<'_> {
        // SAFETY: the caller's promise.
        ByteEntry(unsafe { Hold::new(&self.shared, entry.cast()) })
    }

    /// Turns a value back that [`ByteFill::into_raw`] gave up.
    ///
    /// # Safety
    /// The value is one of this cache's, and is turned back once.
    pub unsafe fn fill_from_raw(&self, entry: NonNull<u8>) -> ByteFill<'_> {
        self.shared.outside.fetch_sub(1, Relaxed);
        // SAFETY: the caller's promise: a block with its key.
        ByteFill(unsafe { Fresh::new(&self.shared, entry.cast::<Header>()) })
    }

    /// A block with its key, of which the value is not written.
    fn begin(&self, hash: u32, key: &[u8], len: usize) -> Result<Fresh<'_, Bytes>, Refusal> {
        let shared = &*self.shared;
        let most = shared.place.largest().min(shared.room.most());
        let layout = Bytes::layout_of(key.len(), len);
        let weight = layout.map_or(usize::MAX, |layout| shared.place.size(layout));
        let layout = layout.filter(|_| weight <= most).ok_or(Refusal::TooLarge { weight, target: most })?;
        let entry = Fresh::alloc(shared, hash, layout).ok_or(Refusal::OutOfMemory)?;
        // SAFETY: fresh, and of that layout.
        Ok(unsafe { self.begin_in(entry, key, len) })
    }

    /// [`Self::begin`] of what is to take the place of the key's value, which leaves where that is refused.
    fn begin_new(&self, key: &[u8], len: usize) -> Result<Fresh<'_, Bytes>, Refusal> {
        let hash = self.hash(key);
        self.begin(hash, key, len).inspect_err(|_| self.shared.displace(hash, |other| other == key))
    }

    /// [`Self::begin`] of what is wanted in any case.
    fn begin_load(&self, hash: u32, key: &[u8], len: usize) -> Result<Fresh<'_, Bytes>, Refusal> {
        self.begin(hash, key, len).or_else(|_| self.begin_spare(hash, key, len))
    }

    /// [`Self::begin`] where the cache or its place has no room.
    #[cold]
    fn begin_spare(&self, hash: u32, key: &[u8], len: usize) -> Result<Fresh<'_, Bytes>, Refusal> {
        let layout = Bytes::layout_of(key.len(), len).ok_or(Refusal::OutOfMemory)?;
        let entry = Fresh::<Bytes>::alloc_spare(hash, layout).ok_or(Refusal::OutOfMemory)?;
        // SAFETY: fresh, and of that layout.
        Ok(unsafe { self.begin_in(entry, key, len) })
    }

    /// # Safety
    /// The block is fresh, and of [`Bytes::layout_of`] these lengths.
    unsafe fn begin_in(&self, entry: NonNull<Header>, key: &[u8], len: usize) -> Fresh<'_, Bytes> {
        // SAFETY: the caller's promise.
        unsafe {
            Bytes::begin(entry, key, len);
            Fresh::new(&self.shared, entry)
        }
    }
}

impl<'c> IntoIterator for &'c ByteCache {
    type Item = ByteEntry<'c>;
    type IntoIter = ByteEntries<'c>;
    fn into_iter(self) -> ByteEntries<'c> {
        self.iter()
    }
}

impl fmt::Debug for ByteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteCache").field("name", &self.name()).field("len", &self.len()).finish_non_exhaustive()
    }
}
