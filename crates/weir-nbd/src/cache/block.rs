//! What a cached block is.

use std::ops::Range;

/// Bytes of a cached block: the block of ext4, XFS and the kernel's page cache, so that what clients write is whole
/// blocks, and a page of the heap.
pub const BLOCK: usize = 4096;

/// The blocks that a range touches.
pub fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK as u64..range.end.div_ceil(BLOCK as u64)
}
