//! Values that keys are looked up by, and the hash function of evictable caches, unless the program brings its own. The function
//! folds a product of 128 bits for each word, with a seed that differs from cache to cache.

use core::borrow::Borrow;
use core::hash::{BuildHasher, Hasher};

use crate::evictable_cache::host::random;

/// 2^64 over the golden ratio, made odd.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A value by which a key may be looked up: one that the key borrows as, and one that a program says is the same.
///
/// ```
/// use weir::{Equivalent, EvictableCache};
///
/// /// A key of two parts, one of them borrowed.
/// #[derive(Hash)]
/// struct Part<'a>(&'a str, u32);
///
/// impl Equivalent<(String, u32)> for Part<'_> {
///     fn equivalent(&self, key: &(String, u32)) -> bool {
///         self.0 == key.0 && self.1 == key.1
///     }
/// }
///
/// let cache = EvictableCache::<(String, u32), u32>::builder().build().unwrap();
/// drop(cache.insert(("a".into(), 1), 7));
/// assert_eq!((cache.get_copied(&Part("a", 1)), cache.get_copied(&Part("a", 2))), (Some(7), None));
/// ```
///
/// Equivalent values have the same hash. The comparison runs under a lock of the cache
/// ([locks](crate::EvictableCache#locks)).
pub trait Equivalent<K: ?Sized> {
    /// Whether this and the key are the same.
    fn equivalent(&self, key: &K) -> bool;
}

impl<Q: Eq + ?Sized, K: Borrow<Q> + ?Sized> Equivalent<K> for Q {
    #[inline]
    fn equivalent(&self, key: &K) -> bool {
        self == key.borrow()
    }
}

/// Makes [`CacheHasher`]s of one seed.
#[derive(Clone, Copy, Debug)]
pub struct SeededHash {
    seeds: [u64; 2],
}

impl SeededHash {
    /// With a random seed.
    pub fn new() -> Self {
        Self { seeds: random() }
    }
}

impl Default for SeededHash {
    fn default() -> Self {
        Self::new()
    }
}

impl BuildHasher for SeededHash {
    type Hasher = CacheHasher;
    #[inline]
    fn build_hasher(&self) -> CacheHasher {
        CacheHasher { state: self.seeds[0], factor: self.seeds[1] | 1 }
    }
}

/// Hashes a key.
#[derive(Clone, Copy, Debug)]
pub struct CacheHasher {
    state: u64,
    factor: u64,
}

#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

macro_rules! words {
    ($($write:ident $type:ty;)*) => {$(
        #[inline]
        fn $write(&mut self, word: $type) {
            self.write_u64(word as u64);
        }
    )*};
}

impl Hasher for CacheHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length tells a short rest from one with zeros behind it.
        self.write_u64(u64::from_le_bytes(last) ^ (bytes.len() as u64).wrapping_mul(FACTOR));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.factor ^ FACTOR);
        self.factor = self.factor.rotate_left(23);
    }

    words! {
        write_u8 u8;
        write_u16 u16;
        write_u32 u32;
        write_usize usize;
    }

    #[inline]
    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state, self.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_that_are_close_have_hashes_that_are_far_apart() {
        let build = SeededHash { seeds: [0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321] };
        let hashes: Vec<u64> = (0..10_000u64).map(|key| build.hash_one(key)).collect();
        // 10,000 in 2^16: 9,270 differ by chance.
        for shift in [0, 16, 32, 48] {
            let parts: HashSet<u64> = hashes.iter().map(|hash| hash >> shift & 0xffff).collect();
            assert!(parts.len() > 8_900, "bits from {shift} on: {}", parts.len());
        }
        assert_ne!(build.hash_one("a"), build.hash_one("a\0"));
        assert_ne!(build.hash_one([1u8; 8].as_slice()), build.hash_one([1u8; 16].as_slice()));
    }
}
