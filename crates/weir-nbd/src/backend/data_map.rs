//! Which parts of a file are known to be data.
//!
//! `SEEK_HOLE` has no end. In memory (tmpfs, memfd) it looks at every page from where it begins to the next hole, 15 ms for
//! each GiB. So what it has found is remembered, and what the server itself writes is not asked about.
//!
//! That something is data may always be said: a hole that is taken for data reads as zeroes. That something is a hole is asked
//! anew each time. So no order between this and reads, writes and trims is needed.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Smallest unit that is known, bytes: a page.
const UNIT: u32 = 12;
/// Most units of a file: 2 MiB of bits. A file of more than 64 GiB has larger ones.
const MOST: u64 = 1 << 24;
const BITS: u64 = u64::BITS as u64;

/// A bit for each unit: set where it is known to be data.
pub struct DataMap {
    /// Bytes of a unit, as a power of 2.
    shift: u32,
    words: Box<[AtomicU64]>,
    /// The map that is in place of this since the file has grown.
    larger: OnceLock<Box<DataMap>>,
}

impl DataMap {
    /// Makes the map of a file of `size` bytes: all of it is data, or nothing is known.
    pub fn new(size: u64, is_data: bool) -> Self {
        let shift = (UNIT..).find(|shift| size.div_ceil(1 << shift) <= MOST).expect("a size has 64 bits");
        let words = size.div_ceil(1 << shift).div_ceil(BITS);
        let all = if is_data { u64::MAX } else { 0 };
        Self { shift, words: (0..words).map(|_| AtomicU64::new(all)).collect(), larger: OnceLock::new() }
    }

    /// The file has grown to `size` bytes. The larger map has room for twice as much: so there are few of them, one in another.
    /// What is added or removed meanwhile may be missed, as both may.
    pub fn grow(&self, size: u64) {
        let old = self.newest();
        if size.div_ceil(1 << old.shift) <= old.words.len() as u64 * BITS {
            return;
        }
        let larger = Self::new(size.saturating_mul(2), false);
        let mut unit = 0;
        while let Some(word) = old.words.get((unit / BITS) as usize) {
            let skipped = (word.load(Relaxed) >> (unit % BITS)).trailing_zeros().min((BITS - unit % BITS) as u32);
            unit += u64::from(skipped);
            let end = old.end(unit << old.shift, u64::MAX);
            larger.add(unit << old.shift..end);
            unit = end >> old.shift;
        }
        // Where another was quicker, its map stays.
        let _ = old.larger.set(Box::new(larger));
    }

    fn newest(&self) -> &Self {
        let mut map = self;
        while let Some(larger) = map.larger.get() {
            map = larger;
        }
        map
    }

    /// A range is data. Of units that it covers in part only pages count: they are data as a whole.
    pub fn add(&self, range: Range<u64>) {
        let map = self.newest();
        let unit = 1 << map.shift;
        let units = match map.shift {
            UNIT => range.start >> UNIT..range.end.div_ceil(unit),
            shift => range.start.div_ceil(unit)..range.end >> shift,
        };
        map.change(units, |word, mask| {
            // Most often it is known: then the line stays shared between CPUs.
            if word.load(Relaxed) & mask != mask {
                word.fetch_or(mask, Relaxed);
            }
        });
    }

    /// A range may have become a hole.
    pub fn remove(&self, range: Range<u64>) {
        let map = self.newest();
        let units = range.start >> map.shift..range.end.div_ceil(1 << map.shift);
        map.change(units, |word, mask| _ = word.fetch_and(!mask, Relaxed));
    }

    /// Where the data that begins at `at` ends, as far as it is known; `at` if nothing is. It looks no further than `most`.
    pub fn end(&self, at: u64, most: u64) -> u64 {
        let map = self.newest();
        let mut unit = at >> map.shift;
        while unit << map.shift < most
            && let Some(word) = map.words.get((unit / BITS) as usize)
        {
            let left = BITS - unit % BITS;
            let ones = u64::from((word.load(Relaxed) >> (unit % BITS)).trailing_ones());
            unit += ones;
            if ones < left {
                break;
            }
        }
        at.max(most.min(unit << map.shift))
    }

    fn change(&self, units: Range<u64>, change: impl Fn(&AtomicU64, u64)) {
        let end = units.end.min(self.words.len() as u64 * BITS);
        let mut at = units.start;
        while at < end {
            let (bit, word) = (at % BITS, &self.words[(at / BITS) as usize]);
            let count = (BITS - bit).min(end - at);
            change(word, (u64::MAX >> (BITS - count)) << bit);
            at += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const ALL: u64 = u64::MAX;

    #[test]
    fn what_was_added_is_known_until_it_is_removed() {
        let map = DataMap::new(1000 * PAGE, false);
        assert_eq!(map.end(0, ALL), 0);
        map.add(10 * PAGE..300 * PAGE);
        assert_eq!(
            (map.end(0, ALL), map.end(10 * PAGE, ALL), map.end(299 * PAGE + 5, ALL)),
            (0, 300 * PAGE, 300 * PAGE)
        );
        assert_eq!(map.end(300 * PAGE, ALL), 300 * PAGE);
        map.remove(100 * PAGE + 1..101 * PAGE);
        assert_eq!((map.end(10 * PAGE, ALL), map.end(101 * PAGE, ALL)), (100 * PAGE, 300 * PAGE));
        map.add(100 * PAGE + 7..100 * PAGE + 8);
        assert_eq!(map.end(10 * PAGE, ALL), 300 * PAGE, "a page is data as a whole");
        // Behind the end, as of a file that has grown, of which it does not know.
        map.add(999 * PAGE..5000 * PAGE);
        assert_eq!(map.end(4000 * PAGE, ALL), 4000 * PAGE);
    }

    #[test]
    fn a_file_that_has_grown_keeps_what_is_known_and_more_becomes_known() {
        let map = DataMap::new(1000 * PAGE, false);
        map.add(10 * PAGE..300 * PAGE);
        map.add(999 * PAGE..1000 * PAGE);
        for size in [8 << 20, 1 << 30, 1 << 38] {
            map.grow(size);
            map.add(size - (1 << 20)..size);
            assert_eq!(map.end(size - (1 << 20), ALL), size);
        }
        // The units are of 32 KiB now: only whole ones are known.
        assert_eq!((map.newest().shift, map.end(10 * PAGE, ALL)), (15, 10 * PAGE));
        assert_eq!((map.end(16 * PAGE, ALL), map.end(999 * PAGE, ALL)), (296 * PAGE, 999 * PAGE));
        map.remove(20 * PAGE..21 * PAGE);
        assert_eq!(map.end(16 * PAGE, ALL), 16 * PAGE);
    }

    #[test]
    fn the_end_of_a_range_is_the_end_of_a_look() {
        let map = DataMap::new(1000 * PAGE, true);
        assert_eq!(map.end(0, 5 * PAGE + 1), 5 * PAGE + 1);
        assert_eq!((map.end(70 * PAGE, 70 * PAGE), map.end(7, 128 * PAGE)), (70 * PAGE, 128 * PAGE));
        map.remove(200 * PAGE..201 * PAGE);
        assert_eq!((map.end(0, 200 * PAGE), map.end(0, 300 * PAGE)), (200 * PAGE, 200 * PAGE));
    }

    #[test]
    fn large_files_have_large_units() {
        let map = DataMap::new(1 << 40, true);
        assert_eq!((map.shift, map.words.len() as u64 * BITS), (16, MOST));
        assert_eq!(map.end(5, ALL), 1 << 40);
        map.remove(1 << 20..(1 << 20) + 1);
        map.add(1 << 20..(1 << 20) + PAGE);
        assert_eq!(map.end(0, ALL), 1 << 20, "a page is not the unit");
        map.add(1 << 20..(1 << 20) + (1 << 16));
        assert_eq!(map.end(0, ALL), 1 << 40);
    }
}
