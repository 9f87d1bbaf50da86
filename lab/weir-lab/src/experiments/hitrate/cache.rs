//! What a cache is to the experiment, and the hash function that all of them use.

use std::hash::{BuildHasherDefault, Hasher};

/// A cache from keys to numbers.
pub trait Cache: Sync {
    /// The value of a key, which counts as a use.
    fn get(&self, key: u64) -> Option<u64>;
    /// Puts a key in that is not there.
    fn insert(&self, key: u64, value: u64);
    /// The number of entries.
    fn held(&self) -> usize;
}

/// Something that is done with a cache.
pub type Work<'a> = dyn FnMut(&dyn Cache) + 'a;

/// The hash function of all: two multiplications.
#[derive(Clone, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        let x = (self.0 ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// How all caches make their hashers.
pub type Hash = BuildHasherDefault<KeyHasher>;
