//! How a byte cache is made.

use core::fmt;

use super::byte_cache::ByteCache;
use super::common::{Owner, common_options};
use super::hasher::SeededHash;
use crate::cache_error::CacheError;
use crate::evictable_cache::entry::bytes::Bytes;
use crate::evictable_cache::options::Options;

impl ByteCache {
    /// Sets out how a cache is made.
    pub fn builder() -> ByteCacheBuilder {
        ByteCacheBuilder { options: Options::new() }
    }
}

/// Makes a [`ByteCache`].
pub struct ByteCacheBuilder {
    options: Options<Bytes>,
}

impl ByteCacheBuilder {
    common_options!([u8], [u8]);

    /// Makes the cache.
    ///
    /// # Errors
    /// [`CacheError::OutOfMemory`], [`CacheError::Shards`].
    pub fn build(self) -> Result<ByteCache, CacheError> {
        Ok(ByteCache { shared: Owner::new(self.options)?, hasher: SeededHash::new() })
    }
}

impl fmt::Debug for ByteCacheBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.options.name.text();
        f.debug_struct("ByteCacheBuilder").field("name", &name).finish_non_exhaustive()
    }
}
