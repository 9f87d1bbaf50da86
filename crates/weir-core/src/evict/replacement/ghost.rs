//! Hashes of keys evicted lately, in buckets of eight; a bucket forgets its oldest.
//!
//! A hash counts as evicted lately until 9/10 as many others were evicted after it as the cache has entries. S3-FIFO's
//! ghost queue has the main queue's length, 9/10 of the cache. Two keys of one hash are taken for each other; with 32
//! bits and eight places that is one in 500 million look-ups.

/// Places of a bucket: one cache line.
const PLACES: usize = 8;

/// The hashes. A place of zero is empty; else it is the number of the eviction (from 1 on) and the hash.
#[derive(Debug)]
pub struct Ghost<'a> {
    places: &'a mut [u64],
    /// Places in use: a power of two, or 0 without any storage.
    used: usize,
    /// Number of the last eviction.
    evictions: u32,
}

impl<'a> Ghost<'a> {
    /// An empty one over `places` of zeros; it uses as many as fit the entries, rounded to a power of two.
    pub fn new(places: &'a mut [u64]) -> Self {
        let used = if places.len() < PLACES { 0 } else { PLACES };
        Self { places, used, evictions: 0 }
    }

    /// The words in use, counted from the front.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Adjusts to a cache of `entries`: one place per entry.
    pub fn fit(&mut self, entries: usize) {
        while self.used > 0 && entries > self.used && self.used * 2 <= self.places.len() {
            // A bucket's index gains a bit: each hash is now in the right one of the two, and a stranger in the other.
            let (from, to) = self.places.split_at_mut(self.used);
            to[..from.len()].copy_from_slice(from);
            self.used *= 2;
        }
        while self.used > PLACES && entries < self.used / 4 {
            self.used /= 2;
            self.places[self.used..self.used * 2].fill(0);
        }
    }

    /// Takes over what `other` remembers, as far as there are places; `self` is empty.
    pub fn take_over(&mut self, other: &Ghost) {
        while self.used > 0 && self.used < other.used && self.used * 2 <= self.places.len() {
            self.used *= 2;
        }
        let both = self.used.min(other.used);
        self.places[..both].copy_from_slice(&other.places[..both]);
        self.used = both;
        self.evictions = other.evictions;
    }

    /// Notes that the key of `hash` was evicted.
    pub fn add(&mut self, hash: u32) {
        self.evictions = if self.evictions == u32::MAX { 1 } else { self.evictions + 1 };
        let (now, value) = (self.evictions, pack(self.evictions, hash));
        let Some(bucket) = self.bucket(hash) else { return };
        let oldest = bucket.iter_mut().max_by_key(|place| if **place == 0 { u32::MAX } else { age(now, **place) });
        if let Some(place) = oldest {
            *place = value;
        }
    }

    /// True if the key of `hash` was evicted lately from a cache that has `entries`; it is forgotten by that.
    pub fn take(&mut self, hash: u32, entries: usize) -> bool {
        let (now, window) = (self.evictions, entries as u64 * 9 / 10);
        let Some(bucket) = self.bucket(hash) else { return false };
        let Some(place) = bucket.iter_mut().find(|place| **place != 0 && **place as u32 == hash) else { return false };
        let is_lately = u64::from(age(now, *place)) < window;
        *place = 0;
        is_lately
    }

    fn bucket(&mut self, hash: u32) -> Option<&mut [u64]> {
        let buckets = self.used / PLACES;
        let first = hash as usize & buckets.checked_sub(1)?;
        self.places[..self.used].chunks_exact_mut(PLACES).nth(first)
    }
}

const fn pack(eviction: u32, hash: u32) -> u64 {
    (eviction as u64) << 32 | hash as u64
}

/// Evictions since that of `place`.
const fn age(now: u32, place: u64) -> u32 {
    now.wrapping_sub((place >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_nine_tenths_of_the_entries_and_forgets_what_it_was_asked_for() {
        let mut places = [0; 256];
        let mut ghost = Ghost::new(&mut places);
        ghost.fit(200);
        for hash in 0..100 {
            ghost.add(hash * 7919);
        }
        assert!(ghost.take(99 * 7919, 100) && !ghost.take(99 * 7919, 100), "once");
        assert!(ghost.take(11 * 7919, 100) && !ghost.take(9 * 7919, 100), "88 and 90 evictions ago");
        assert!(!ghost.take(1, 100), "never evicted");
    }

    #[test]
    fn growth_forgets_nothing_and_shrinking_releases() {
        let mut places = [0; 1024];
        let mut ghost = Ghost::new(&mut places);
        for hash in 0..6 {
            ghost.add(mixed(hash));
        }
        ghost.fit(1000);
        assert_eq!(ghost.used(), 1024);
        assert!((0..6).all(|hash| ghost.take(mixed(hash), 1000)));
        ghost.fit(10);
        assert_eq!(ghost.used(), 32);
        assert!(ghost.places[32..].iter().all(|place| *place == 0), "released storage is zero");
    }

    #[test]
    fn works_without_storage() {
        let mut ghost = Ghost::new(&mut []);
        ghost.fit(100);
        ghost.add(1);
        assert!(!ghost.take(1, 100));
    }

    fn mixed(hash: u32) -> u32 {
        crate::evict::mix(hash.into(), 1)
    }
}
