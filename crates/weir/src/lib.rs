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
// What serves reclaim alone has no use in plain caches.
#![cfg_attr(plain, allow(dead_code))]

extern crate alloc;
#[cfg(all(plain, not(test)))]
extern crate std;

mod cache_error;
mod evictable_cache;
#[cfg(not(plain))]
mod fd;
#[cfg(not(plain))]
mod filling;
#[cfg(not(plain))]
mod global;
#[cfg(not(plain))]
pub mod heap;
#[cfg(not(plain))]
mod object_cache;
#[cfg(not(plain))]
mod page_pool;
#[cfg(not(plain))]
pub mod pressure;
#[cfg(not(plain))]
pub mod settings;
#[cfg(not(plain))]
pub mod shrinker;
#[cfg(not(plain))]
pub mod stats;
#[cfg(not(plain))]
pub mod zone;

pub use cache_error::CacheError;
pub use evictable_cache::{
    ByteCache, ByteCacheBuilder, ByteEntries, ByteEntry, ByteFill, CacheHasher, Entries, Entry, Equivalent,
    EvictableCache, EvictableCacheBuilder, EvictableStats, Expiry, Favour, InsertError, OwnedByteEntry, OwnedEntry,
    Refusal, RemovalCause, SeededHash, Weigh,
};
#[cfg(not(plain))]
pub use fd::Fd;
#[cfg(not(plain))]
pub use global::Weir;
#[cfg(not(plain))]
pub use object_cache::{AllocError, CacheBox, ObjectCache, ObjectCacheBuilder, PerUse, Retained, ValueLifetime};
#[cfg(not(plain))]
pub use page_pool::{PagePool, PagePoolBuilder, PoolError, PoolPages, PoolStats};
#[cfg(not(plain))]
pub use shrinker::{CallbackQueue, CallbackThread, ScanReason, Shrink, Shrinker};
