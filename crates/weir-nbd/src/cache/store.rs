//! The blocks themselves, in an evictable cache.

use super::block::BLOCK;
use crate::base::Failure;
use crate::buffers::Buffer;
use std::ops::Range;
use weir::EvictableCache;

/// A file's number and a block's.
pub type Key = (u32, u64);

/// What an entry takes beside its block, bytes: key, buffer and the cache's own.
const ENTRY: usize = 112;

/// Blocks by their keys. Each is [`BLOCK`] bytes, in pages of its own.
pub struct Store(EvictableCache<Key, Buffer>);

impl Store {
    /// A store of at most `max` bytes, or of as many as memory allows.
    pub fn new(max: Option<u64>) -> Result<Self, Failure> {
        let builder = EvictableCache::builder().name("nbd blocks").weigher(|_: &Key, _: &Buffer| BLOCK + ENTRY);
        let builder = match max {
            Some(max) => builder.max_bytes(usize::try_from(max).unwrap_or(usize::MAX)),
            None => builder,
        };
        builder.build().map(Self).map_err(Failure::because("the block cache"))
    }

    /// Appends `part` of a block to `out`, if the block is here.
    pub fn copy(&self, key: Key, part: Range<usize>, out: &mut Buffer) -> bool {
        let Some(block) = self.0.get(&key) else { return false };
        out.append(&block.filled()[part]);
        true
    }

    /// Is the block here?
    pub fn contains(&self, key: Key) -> bool {
        self.0.contains(&key)
    }

    /// Puts a block in. Where that is refused, for want of memory, an older one does not stay.
    pub fn insert(&self, key: Key, block: Buffer) {
        if self.0.insert(key, block).is_err() {
            self.0.remove(&key);
        }
    }

    /// Removes a block.
    pub fn remove(&self, key: Key) {
        self.0.remove(&key);
    }

    /// Blocks and bytes that are here.
    pub fn size(&self) -> (usize, usize) {
        (self.0.len(), self.0.bytes())
    }
}
