//! What evictable caches are made of (the cache itself is `weir`'s): the admission and eviction policy, the index, and the
//! count of pins, as plain data structures; and the callbacks by which caches of all kinds share the heap's budget.
//!
//! Nothing here allocates, and the policy neither locks nor reads a clock. The owner (a shard of a cache) supplies the
//! storage, numbers its entries, and maps keys to entry numbers itself. Storage of all zeros is valid and empty, so fresh pages serve as
//! they are. The same calls with the same seed give the same victims.
//!
//! | file | what it is |
//! |---|---|
//! | [`slot`] | one entry's links, weight and hash |
//! | [`hits`] | how often each entry was hit lately, as 2-bit counters |
//! | [`prefetch`] | hints to fetch a cache line |
//! | [`fifo`] | a queue of entries, linked by their numbers |
//! | [`sketch`] | how often each key was seen lately, as 4-bit counters |
//! | [`ghost`] | hashes of keys evicted lately |
//! | [`setting`] | the four ways to run the queues |
//! | [`queues`] | the small and the main queue, and the search for a victim |
//! | [`policy`] | a shard's policy: what hits write without a lock, and the queues with their target |
//! | [`index`] | from hashes to entries |
//! | [`lifetime`] | until when an entry lives |
//! | [`landings`] | waiting for a value that another thread computes |
//! | [`pins`] | how many hold an entry, so that none is freed in use |
//! | [`shadow`] | a miniature cache without values, which shows what one setting would do |
//! | [`duel`] | four shadows over a sample of the keys, which choose the setting |
//!
//! Beside the policy, what pressure does to caches, the engine's own and a program's:
//!
//! | file | what it is |
//! |---|---|
//! | [`callback`] | what a program registers, and the queue whose thread calls it |
//! | [`callbacks`] | the registry: posting, callbacks that are slow |
//! | `unregistering` | waits until a callback has returned |
//! | `waits` | the threads that do, so that none waits where callbacks unregister each other |
//! | [`calling`] | what the threads do that call them |
//! | `shrink` | one call of a shrinker: batches, and work that is deferred |
//! | [`shrinkers`] | the shrinkers as reclaim scans them |
//!
//! A new entry joins the small queue. A hit raises a counter of two bits and moves nothing. When the cache is above its
//! target, the oldest small entry either moves to the main queue or is evicted; the oldest main entry is evicted once its
//! counter is zero, and goes round again otherwise. What falls out while the target falls is the one seen least of five
//! entries drawn at random. docs/design/evictable-caches.md says why, and what else
//! was tried.

pub mod callback;
pub(crate) mod callbacks;
pub mod calling;
pub mod duel;
pub(crate) mod fifo;
pub(crate) mod ghost;
pub(crate) mod hits;
pub mod index;
pub mod landings;
pub mod lifetime;
pub mod pins;
pub mod policy;
pub(crate) mod prefetch;
pub(crate) mod queues;
pub mod setting;
pub(crate) mod shadow;
mod shrink;
pub(crate) mod shrinkers;
pub(crate) mod sketch;
pub mod slot;
mod sync;
mod unregistering;
mod waits;

/// A key's hash as the policy stores it: 32 bits, every one of which depends on every bit of `hash` and of `seed`.
///
/// The finalizer is that of MurmurHash3 (Austin Appleby, public domain), so a weak hash of the owner's does no harm.
pub const fn mix(hash: u64, seed: u64) -> u32 {
    let mut x = hash ^ seed;
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    ((x ^ (x >> 33)) >> 16) as u32
}
