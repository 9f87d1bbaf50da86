//! Evictable caches: caches of a program's own that share the process's memory with everything else in it.
//!
//! | file | what is in it |
//! |---|---|
//! | `cache`, `builder`, `entry`, `typed` | the typed cache, how it is made, its guards, its entries' blocks |
//! | `shared` | what both kinds of cache are: look-up, removal, the end, `fork` |
//! | `fresh`, `flight` | an entry on its way in; values that are being computed |
//! | `room` | how much is held: growth, eviction, the target under pressure |
//! | `write_back` | dirty entries |
//! | `hold`, `header` | holds of entries and entries on their way out; what every entry begins with |
//! | `shard`, `storage`, `list` | a shard; its policy, index and entries by number; a list of entries |
//! | `adapt` | the duel that chooses how the policy is run |
//! | `place`, `closure`, `hasher` | where entries lie; closures on Weir's heap; the hash function |
//! | `seams` | how reclaim reaches caches |

mod adapt;
mod builder;
mod cache;
mod closure;
mod entry;
mod errors;
mod flight;
mod fresh;
mod hasher;
mod header;
mod hold;
mod list;
mod place;
mod room;
mod seams;
mod shard;
mod shared;
mod stats;
mod storage;
mod typed;
mod write_back;

pub use builder::EvictableCacheBuilder;
pub use cache::EvictableCache;
pub use entry::{DirtyEntry, Entry, WriteBatch};
pub use errors::{ComputeError, InsertError, Refusal, WriteBackError};
pub use hasher::{CacheHasher, SeededHash};
pub use stats::{Cause, EvictableStats};
