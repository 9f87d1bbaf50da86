//! Evictable caches: caches of a program's own that share the process's memory with everything else in it.
//!
//! | file | what is in it |
//! |---|---|
//! | `cache`, `builder`, `entry`, `typed` | the typed cache, how it is made, its guards, its entries' blocks |
//! | `byte_cache`, `byte_builder`, `byte_entry`, `bytes` | the same for the cache of bytes |
//! | `common`, `name` | what the two have alike, as methods; names |
//! | `shared`, `life`, `figures` | the state of both; its beginning, its end and `fork`; its figures |
//! | `lookup`, `removal`, `walk` | entries by key; entries taken out; all entries in turn |
//! | `fresh`, `flight`, `flights` | an entry on its way in; values that are being computed |
//! | `room`, `eviction` | how much is held, growth; eviction, the target under pressure |
//! | `dirt`, `write_back`, `handle` | what is dirty; how it is written back; the entries that are under way |
//! | `hold`, `header` | holds of entries and entries on their way out; what every entry begins with |
//! | `shard`, `storage`, `sizing`, `list` | a shard; its policy, index and entries by number; their size; a list of entries |
//! | `adapt`, `sampling` | the duel that chooses how the policy is run; what it sees |
//! | `place`, `closure`, `hasher` | where entries lie; closures on Weir's heap; the hash function |
//! | `weigh` | what values own of the heap |
//! | `ages` | until when entries live |
//! | `seams` | how reclaim reaches caches |

mod adapt;
mod ages;
mod builder;
mod byte_builder;
mod byte_cache;
mod byte_entry;
mod bytes;
mod cache;
mod closure;
mod common;
mod dirt;
mod entry;
mod errors;
mod eviction;
mod figures;
mod flight;
mod flights;
mod fresh;
mod handle;
mod hasher;
mod header;
mod hold;
mod life;
mod list;
mod lookup;
mod name;
mod place;
mod removal;
mod room;
mod sampling;
mod seams;
mod shard;
mod shared;
mod sizing;
mod stats;
mod storage;
mod typed;
mod walk;
mod weigh;
mod write_back;

pub use ages::Expiry;
pub use builder::EvictableCacheBuilder;
pub use byte_builder::ByteCacheBuilder;
pub use byte_cache::ByteCache;
pub use byte_entry::{ByteEntries, ByteEntry, ByteFill, ByteWriteBatch, DirtyBytes};
pub use cache::EvictableCache;
pub use entry::{DirtyEntry, Entries, Entry, WriteBatch};
pub use errors::{InsertError, Refusal, WriteBackError};
pub use hasher::{CacheHasher, Equivalent, SeededHash};
pub use stats::{Cause, EvictableStats};
pub use weigh::Weigh;
