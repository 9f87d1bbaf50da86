//! Hashes of keys evicted lately, in buckets of eight; a bucket forgets its oldest.
//!
//! A hash counts as evicted lately until 9/10 as many others were evicted after it as the cache has entries. S3-FIFO's
//! ghost queue has the main queue's length, 9/10 of the cache.
//!
//! A place has 16 bits of a hash and a time: a count of evictions, or of groups of them in a large cache. The bits are of a product
//! of the hash. The bits of the hash itself are spoken for: the lower ones choose the bucket, and the upper ones the shard, or
//! the keys that a shadow samples. Two keys of the same bits are taken for each other. With eight places that is one in 8,000
//! look-ups, and more where buckets and shards leave fewer than 16 bits that differ: one in 250 in 8 shards of 16 million entries.

/// Places of a bucket: half a cache line.
const PLACES: usize = 8;
/// In a cache of more places than this, times count groups of evictions, so that so many groups are one turn of all places.
const TIMES_A_TURN: usize = 4096;
/// Times there are, 1 to this. What is left from 16 turns ago looks new; no bucket is left alone for so long.
const TIMES: u16 = u16::MAX;

/// The hashes. A place of zero is empty; else its upper half is the time, and its lower half part of the hash.
#[derive(Debug)]
pub struct Ghost<'a> {
    places: &'a mut [u32],
    /// Places in use: a power of two, or 0 without any storage.
    pub(super) used: usize,
    /// The time of the last eviction.
    now: u16,
    /// Evictions in the group that is being counted.
    group: usize,
}

impl<'a> Ghost<'a> {
    /// An empty one over `places` of zeros; it uses as many as fit the entries, rounded to a power of two.
    pub fn new(places: &'a mut [u32]) -> Self {
        let used = if places.len() < PLACES { 0 } else { PLACES };
        Self { places, used, now: TIMES, group: 0 }
    }

    /// Adjusts to a cache of `entries`: one place per entry.
    pub fn fit(&mut self, entries: usize) {
        while self.used > 0 && entries > self.used && self.used * 2 <= self.places.len() {
            // A bucket's index gains a bit: each hash is now in the right one of the two, and a stranger in the other.
            if self.used >= TIMES_A_TURN {
                self.set_ages(|age| age / 2);
            }
            let (from, to) = self.places.split_at_mut(self.used);
            to[..from.len()].copy_from_slice(from);
            self.used *= 2;
        }
        while self.used > PLACES && entries < self.used / 4 {
            self.used /= 2;
            self.places[self.used..self.used * 2].fill(0);
            if self.used >= TIMES_A_TURN {
                self.set_ages(|age| age.saturating_mul(2));
            }
        }
    }

    /// Takes over what `other` remembers, as far as there are places; `self` is empty.
    pub fn take_over(&mut self, other: &Ghost) {
        let both = if self.used == 0 { 0 } else { other.used.min(previous_power_of_two(self.places.len())) };
        self.places[..both].copy_from_slice(&other.places[..both]);
        (self.used, self.now, self.group) = (both, other.now, other.group);
        if other.used > TIMES_A_TURN && both < other.used {
            let (was, is) = (group(other.used), group(both));
            self.set_ages(|age| (usize::from(age) * was / is).try_into().unwrap_or(u16::MAX));
        }
    }

    /// Gives each place another age. What is two turns old is forgotten: near the last time there is, it would soon look new.
    fn set_ages(&mut self, of: impl Fn(u16) -> u16) {
        let now = self.now;
        for place in self.places[..self.used].iter_mut().filter(|place| **place != 0) {
            let age = of(age(now, *place));
            *place = if usize::from(age) < 2 * TIMES_A_TURN { pack(time(now, age), *place as u16) } else { 0 };
        }
    }

    /// Notes that the key of `hash` was evicted.
    pub fn add(&mut self, hash: u32) {
        self.group += 1;
        if self.group >= group(self.used) {
            self.group = 0;
            self.now = if self.now == TIMES { 1 } else { self.now + 1 };
        }
        let (now, value) = (self.now, pack(self.now, part(hash)));
        let Some(bucket) = self.bucket(hash) else { return };
        let oldest = bucket.iter_mut().max_by_key(|place| if **place == 0 { u16::MAX } else { age(now, **place) });
        if let Some(place) = oldest {
            *place = value;
        }
    }

    /// True if the key of `hash` was evicted lately from a cache that has `entries`; it is forgotten by that.
    pub fn take(&mut self, hash: u32, entries: usize) -> bool {
        let (now, window, group) = (self.now, entries as u64 * 9 / 10, group(self.used) as u64);
        let Some(bucket) = self.bucket(hash) else { return false };
        let Some(place) = bucket.iter_mut().find(|place| **place != 0 && **place as u16 == part(hash)) else {
            return false;
        };
        let is_lately = u64::from(age(now, *place)) * group < window;
        *place = 0;
        is_lately
    }

    fn bucket(&mut self, hash: u32) -> Option<&mut [u32]> {
        let buckets = self.used / PLACES;
        let first = hash as usize & buckets.checked_sub(1)?;
        self.places[..self.used].chunks_exact_mut(PLACES).nth(first)
    }
}

/// Evictions that are one time, of a cache of so many places.
const fn group(used: usize) -> usize {
    if used <= TIMES_A_TURN { 1 } else { used / TIMES_A_TURN }
}

/// The bits of a hash that a place has (the factor is of MurmurHash3's finalizer).
const fn part(hash: u32) -> u16 {
    (hash.wrapping_mul(0x85eb_ca6b) >> 16) as u16
}

const fn pack(time: u16, part: u16) -> u32 {
    (time as u32) << 16 | part as u32
}

/// Times since that of `place`.
const fn age(now: u16, place: u32) -> u16 {
    let then = (place >> 16) as u16;
    if now >= then { now - then } else { now + (TIMES - then) }
}

/// The time that was so long ago.
const fn time(now: u16, age: u16) -> u16 {
    if now > age { now - age } else { now + (TIMES - age) }
}

const fn previous_power_of_two(count: usize) -> usize {
    match count.checked_ilog2() {
        Some(bits) => 1 << bits,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_nine_tenths_of_the_entries_and_forgets_what_it_was_asked_for() {
        let mut places = [0; 256];
        let mut ghost = Ghost::new(&mut places);
        ghost.fit(200);
        (0..100).for_each(|key| ghost.add(mixed(key)));
        assert!(ghost.take(mixed(99), 100) && !ghost.take(mixed(99), 100), "once");
        assert!(ghost.take(mixed(11), 100) && !ghost.take(mixed(9), 100), "88 and 90 evictions ago");
        assert!(!ghost.take(mixed(1000), 100), "never evicted");
    }

    #[test]
    fn growth_forgets_nothing_and_shrinking_releases() {
        let mut places = [0; 1024];
        let mut ghost = Ghost::new(&mut places);
        for hash in 0..6 {
            ghost.add(mixed(hash));
        }
        ghost.fit(1000);
        assert_eq!(ghost.used, 1024);
        assert!((0..6).all(|hash| ghost.take(mixed(hash), 1000)));
        ghost.fit(10);
        assert_eq!(ghost.used, 32);
        assert!(ghost.places[32..].iter().all(|place| *place == 0), "released storage is zero");
    }

    /// Of a cache so large that times are of groups of evictions, also while it changes its size and times begin anew.
    #[test]
    fn a_large_one_remembers_as_long() {
        let mut places = vec![0; 1 << 17];
        let mut ghost = Ghost::new(&mut places);
        let mut next = 0;
        for entries in [5_000, 100_000, 30_000, 100_000] {
            ghost.fit(entries);
            for _ in 0..entries * 3 {
                ghost.add(mixed(next));
                next += 1;
            }
            let count = |ghost: &mut Ghost, ages: core::ops::Range<u32>| {
                let of = ages.len();
                let known = ages.filter(|age| ghost.take(mixed(next - 1 - age), entries)).count();
                known as f64 / of as f64
            };
            let window = entries as u32 * 9 / 10;
            // Buckets forget their oldest a little before.
            assert!(count(&mut ghost, window / 2..window / 2 + 500) > 0.9, "{entries}");
            assert!(count(&mut ghost, window + window / 50..window + window / 50 + 500) < 0.01, "{entries}");
        }
    }

    #[test]
    fn what_is_old_does_not_become_new_as_a_cache_falls() {
        let mut places = vec![0; 1 << 18];
        let mut ghost = Ghost::new(&mut places);
        ghost.fit(200_000);
        (0..600_000).for_each(|key| ghost.add(mixed(key)));
        ghost.fit(3_000);
        (0..4).for_each(|key| ghost.add(mixed(1_000_000 + key)));
        let known = (0..580_000).filter(|&key| ghost.take(mixed(key), 3_000)).count();
        assert!(known < 200, "{known} of what left long ago");
    }

    #[test]
    fn a_shadow_sees_few_strangers_as_known() {
        // The keys of a shadow that samples one in 32,768: all their upper bits are 0.
        let mut places = vec![0; 512];
        let mut ghost = Ghost::new(&mut places);
        ghost.fit(512);
        let sampled = |key: u32| mixed(key) >> 15;
        (0..460).for_each(|key| ghost.add(sampled(key)));
        let strangers = (10_000..12_000).filter(|&key| ghost.take(sampled(key), 512)).count();
        assert!(strangers < 40, "{strangers} of 2,000");
    }

    #[test]
    fn a_change_of_size_keeps_ages() {
        for (before, after) in [(8_192, 16_384), (65_536, 131_072), (131_072, 16_384)] {
            let mut places = vec![0; 1 << 17];
            let mut ghost = Ghost::new(&mut places);
            ghost.fit(before);
            (0..4_000).for_each(|key| ghost.add(mixed(key)));
            let mut smaller = vec![0; after];
            let mut other = Ghost::new(&mut smaller);
            other.take_over(&ghost);
            ghost.fit(if after < before { after / 2 } else { after });
            for ghost in [&mut ghost, &mut other] {
                // A smaller one forgets the upper buckets.
                let known = (3_500..3_900).filter(|&key| ghost.take(mixed(key), 4_000)).count();
                assert!(if after < before { known > 10 } else { known == 400 }, "{before} to {after}: {known}");
                assert!((0..300).all(|key| !ghost.take(mixed(key), 4_000)), "{before} to {after}");
            }
        }
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
