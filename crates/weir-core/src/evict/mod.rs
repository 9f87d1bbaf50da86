//! The parts of evictable caches; the cache itself is `weir`'s. The policy of admission and eviction, the index, and the count of
//! pins are plain data structures. By the callbacks caches of all kinds share the heap's budget.
//!
//! Nothing here allocates, and the policy neither locks nor reads a clock. The owner (a shard of a cache) supplies the storage,
//! numbers its entries, and maps keys to entry numbers itself. Storage of all zeros is valid and empty, so fresh pages serve as
//! they are. The same calls with the same seed give the same victims.
//!
//! | folder or file | what it is |
//! |---|---|
//! | [`replacement`] | a shard's policy: which entry goes |
//! | [`shrinkers`] | what pressure does to caches, the engine's own and a program's: the registry, and who calls what |
//! | [`index`] | from hashes to entries |
//! | [`lifetime`] | until when an entry lives |
//! | [`landings`] | waiting for a value that another thread computes |
//! | [`pins`] | how many hold an entry, so that none is freed in use |
//! | [`waits`] | who waits for whom, so that no wait closes a circle |
//! | [`weight`] | what an entry weighs, in 30 bits |

pub mod index;
pub mod landings;
pub mod lifetime;
pub mod pins;
pub mod replacement;
pub(crate) mod shrinker_scan;
pub mod shrinkers;
pub mod waits;
pub mod weight;

pub use shrinkers::{callback, calling};

/// A key's hash as the policy stores it: 32 bits, every one of which depends on every bit of `hash` and of `seed`.
///
/// The finalizer is that of MurmurHash3 (Austin Appleby, public domain), so a weak hash of the owner's does no harm.
pub const fn mix(hash: u64, seed: u64) -> u32 {
    let mut x = hash ^ seed;
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    ((x ^ (x >> 33)) >> 16) as u32
}
