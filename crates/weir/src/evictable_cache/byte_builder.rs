//! How a byte cache is made.

use core::ptr::NonNull;

use super::ages::Expiry;
use super::byte_cache::ByteCache;
use super::byte_entry::ByteWriteBatch;
use super::bytes::Bytes;
use super::closure::Closure;
use super::common::common_options;
use super::handle::Batch;
use super::header::Header;
use super::shared::{Options, Shared};
use super::stats::Cause;
use crate::object_cache::CacheError;

impl ByteCache {
    /// Sets out how a cache is made.
    pub fn builder() -> ByteCacheBuilder {
        ByteCacheBuilder::new()
    }
}

/// Makes a [`ByteCache`].
pub struct ByteCacheBuilder {
    options: Options<Bytes>,
    /// There was no memory for a closure.
    is_short: bool,
}

impl ByteCacheBuilder {
    pub(super) const fn new() -> Self {
        Self { options: Options::new(), is_short: false }
    }

    common_options!();

    /// How long each entry lives; see
    /// [`EvictableCacheBuilder::expire_after`](crate::EvictableCacheBuilder::expire_after).
    pub fn expire_after(mut self, time: impl Fn(&[u8], &[u8]) -> Expiry + Send + Sync + 'static) -> Self {
        self.options.ages.by_entry = Closure::new(time, |at| at as *mut _);
        self.is_short |= self.options.ages.by_entry.is_none();
        self
    }

    /// Is told of every entry that leaves the cache, by key and value, and of values that are refused; see
    /// [`EvictableCacheBuilder::on_evict`](crate::EvictableCacheBuilder::on_evict).
    pub fn on_evict(mut self, listener: impl Fn(&[u8], &[u8], Cause) + Send + Sync + 'static) -> Self {
        self.options.listener = Closure::new(listener, |at| at as *mut _);
        self.is_short |= self.options.listener.is_none();
        self
    }

    /// Writes dirty entries back; see
    /// [`EvictableCacheBuilder::write_back`](crate::EvictableCacheBuilder::write_back).
    pub fn write_back(mut self, write_back: impl Fn(ByteWriteBatch) + Send + Sync + 'static) -> Self {
        self.options.writer = Closure::new(
            move |cache: NonNull<()>, entries: &[NonNull<Header>]| {
                // SAFETY: called by this cache with its own address, and entries that it hands out.
                write_back(ByteWriteBatch(unsafe { Batch::new(cache, entries) }))
            },
            |at| at as *mut _,
        );
        self.is_short |= self.options.writer.is_none();
        self
    }

    /// Makes the cache.
    ///
    /// # Errors
    /// [`CacheError::OutOfMemory`], [`CacheError::Shards`].
    pub fn build(self) -> Result<ByteCache, CacheError> {
        if self.is_short {
            return Err(CacheError::OutOfMemory);
        }
        Ok(ByteCache::of(Shared::new(self.options)?))
    }
}

impl core::fmt::Debug for ByteCacheBuilder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ByteCacheBuilder").finish_non_exhaustive()
    }
}
