#![doc = include_str!("../README.md")]
//!
//! ## Where to look
//!
//! | wanted | see |
//! |---|---|
//! | a global allocator | [`Weir`] |
//! | a cache of objects of one type | [`ObjectCache`] |
//! | pages for the I/O of a device, which go back when memory is short | [`PagePool`] |
//! | a cache of values by key that yields when memory is short | [`EvictableCache`]; of bytes [`ByteCache`] |
//! | a cache of the program's own that becomes smaller when memory is short | [`Shrinker`] |
//! | to hear when memory is short, and when it is not any more | [`pressure`] |
//! | memory of another kind, in pages: files, huge pages, locked | [`zone`] |
//! | to copy blocks together that a peak left on sparse pages | [`heap::should_move`] |
//! | what is in use and idle; releasing now | [`heap::usage`], [`heap::trim`] |
//! | settings, while the program runs | [`settings`] |
//! | releases switched off and on | [`settings::set`]`("report", "0")`, `"1"` |
//! | what was released, and why; figures of caches | [`stats`] |
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod evictable_cache;
mod fd;
mod filling;
mod global;
pub mod heap;
mod object_cache;
mod page_pool;
pub mod pressure;
pub mod settings;
pub mod shrinker;
pub mod stats;
pub mod zone;

pub use evictable_cache::{
    ByteCache, ByteCacheBuilder, ByteEntries, ByteEntry, ByteFill, CacheHasher, Entries, Entry, Equivalent,
    EvictableCache, EvictableCacheBuilder, EvictableStats, Expiry, Favour, InsertError, OwnedByteEntry, OwnedEntry,
    Refusal, RemovalCause, SeededHash, Weigh,
};
pub use fd::Fd;
pub use global::Weir;
pub use object_cache::{
    AllocError, CacheBox, CacheError, ObjectCache, ObjectCacheBuilder, PerUse, Retained, ValueLifetime,
};
pub use page_pool::{PagePool, PagePoolBuilder, PoolError, PoolPages, PoolStats};
pub use shrinker::{CallbackQueue, CallbackThread, ScanReason, Shrink, Shrinker};
