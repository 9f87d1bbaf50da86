//! How often entries were hit lately: two bits each, in a byte by the entry's number.
//!
//! They lie apart from the slots, 64 to a cache line, as they are all that a hit writes of the policy. Hits need no lock:
//! a count is loaded and stored, and of two hits at once one may be lost.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The highest count. Two bits are enough: S3-FIFO (SOSP 2023) found no gain in more.
pub const MOST_HITS: u8 = 3;

/// The counts.
#[derive(Clone, Copy, Debug)]
pub struct Hits<'a>(&'a [AtomicU8]);

impl<'a> Hits<'a> {
    /// One for each entry number, all zeros.
    pub const fn new(counts: &'a [AtomicU8]) -> Self {
        Self(counts)
    }

    /// How often an entry was hit lately, at most [`MOST_HITS`].
    #[inline]
    pub fn get(&self, entry: u32) -> u8 {
        self.0[entry as usize].load(Relaxed)
    }

    /// Counts a hit. An entry that is hit often is only read.
    #[inline]
    pub fn hit(&self, entry: u32) {
        let count = &self.0[entry as usize];
        let hits = count.load(Relaxed);
        if hits < MOST_HITS {
            count.store(hits + 1, Relaxed);
        }
    }

    #[inline]
    pub(super) fn set(&self, entry: u32, hits: u8) {
        self.0[entry as usize].store(hits, Relaxed);
    }
}
