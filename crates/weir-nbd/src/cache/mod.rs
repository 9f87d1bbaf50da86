//! The block cache: what was read and written lately, in one evictable cache for all exports of the server.
//!
//! Memory that it holds is returned when memory is short, coldest blocks first, and it grows again after relief.

mod block_cache;
mod cached_file;
mod dirty;
mod shared;
mod stripes;
mod write_turns;

pub use block_cache::{BlockCache, FileId};
pub use cached_file::{CachedFile, Emptied, MOST_GUARDED, WriteGuard, write_guard_bytes};
pub use dirty::{Run, Writing};
pub use shared::{BLOCK, CacheFigures, blocks_of};
pub use write_turns::WriteTurns;
