//! Evictable caches: caches of a program's own that share the process's memory with everything else in it.
//!
//! | folder or file | what is in it |
//! |---|---|
//! | `api` | what programs see |
//! | `entry` | an entry's block, what lies in it and where, and who holds it |
//! | `load` | entries on their way in, and values that one thread or task computes while others wait |
//! | `shard` | a part of the cache behind a lock: storage, look-ups, walks |
//! | `eviction` | room and growth, eviction, removal, times, and how the policy is run |
//! | `options`, `closure` | how a cache is to be; closures on Weir's heap |
//! | `parts` | entries in a zone of the program's own, and those on the heap |
//! | `shared`, `life`, `figures` | the state of a cache; its beginning and its end; its figures |
//! | `worth` | what a cache is worth to its program |
//! | `host` | what a cache has of the process: memory, locks, reclaim and `fork`; or, on other systems, the standard library |

mod api;
mod closure;
mod entry;
mod eviction;
mod figures;
mod host;
mod life;
mod load;
mod options;
mod parts;
mod shard;
mod shared;
mod worth;

pub use api::builder::EvictableCacheBuilder;
pub use api::byte_builder::ByteCacheBuilder;
pub use api::byte_cache::ByteCache;
pub use api::cache::EvictableCache;
pub use api::errors::{InsertError, Refusal};
pub use api::guards::{ByteEntries, ByteEntry, ByteFill, Entries, Entry};
pub use api::hasher::{CacheHasher, Equivalent, SeededHash};
pub use api::owned::{OwnedByteEntry, OwnedEntry};
pub use api::stats::{EvictableStats, RemovalCause};
pub use api::weigh::Weigh;
pub use eviction::expiry::Expiry;
pub use weir_core::evict::replacement::favour::Favour;
