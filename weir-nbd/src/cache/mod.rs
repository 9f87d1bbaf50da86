//! The block cache: what was read and written lately, in one evictable cache for all exports of the server.
//!
//! Memory that it holds is returned when memory is short, coldest blocks first, and it grows again after relief.

mod block_cache;
mod cached_file;
mod dirty;
mod figures;
mod store;
mod stripes;

pub use block_cache::{BlockCache, FileId};
pub use cached_file::CachedFile;
pub use figures::CacheFigures;

/// Bytes of a cached block: the block of ext4, XFS and the kernel's page cache, so that what clients write is whole
/// blocks, and a page of the heap.
pub const BLOCK: usize = 4096;

/// The blocks that a range touches.
pub fn blocks_of(range: &std::ops::Range<u64>) -> std::ops::Range<u64> {
    range.start / BLOCK as u64..range.end.div_ceil(BLOCK as u64)
}
