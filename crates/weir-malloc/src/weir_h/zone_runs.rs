//! Where the runs of a zone begin and end: what a C program frees must be what it was given, whole.
//!
//! The engine takes back any pages that are in use. For a C program that is a trap. A free with too small a size leaves
//! pages behind that no pointer of the program's leads to, and the zone can never be destroyed. So two bits are kept
//! for each page of the zone: a run begins here, a run ends here.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a page.
pub const PAGE: usize = 4096;

const BITS: usize = u64::BITS as usize;

/// The bits of a zone of `pages` pages: first all beginnings, then all ends. A run's bits are changed by the thread
/// alone that takes or gives it; neighbours share words, so the words are atomic.
pub struct Runs<'a>(&'a [AtomicU64]);

impl<'a> Runs<'a> {
    /// Words for a zone of `pages` pages.
    pub const fn words(pages: usize) -> usize {
        2 * pages.div_ceil(BITS)
    }

    /// Over as many words as [`Runs::words`] says.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Self(words)
    }

    fn begins(&self) -> &'a [AtomicU64] {
        &self.0[..self.0.len() / 2]
    }

    fn ends(&self) -> &'a [AtomicU64] {
        &self.0[self.0.len() / 2..]
    }

    /// A run of `pages` pages from `first` was handed out.
    pub fn add(&self, first: usize, pages: usize) {
        let last = first + pages - 1;
        self.begins()[first / BITS].fetch_or(1 << (first % BITS), Relaxed);
        self.ends()[last / BITS].fetch_or(1 << (last % BITS), Relaxed);
    }

    /// Forgets the run of `pages` pages from `first`; `false` and nothing done if there is no such run. A page that
    /// ends a run which begins at `first` is the first such page from there on, as runs do not overlap.
    pub fn remove(&self, first: usize, pages: usize) -> bool {
        let last = first + pages - 1;
        let is_set = |bits: &[AtomicU64], at: usize| bits[at / BITS].load(Relaxed) >> (at % BITS) & 1 != 0;
        // The bit of the beginning is claimed at once, so that of two threads that free one run only one succeeds.
        let claim = |first: usize| {
            let bit = 1 << (first % BITS);
            self.begins()[first / BITS].fetch_and(!bit, Relaxed) & bit != 0
        };
        let is_run = is_set(self.begins(), first)
            && is_set(self.ends(), last)
            && !(first..last).any(|page| is_set(self.ends(), page))
            && claim(first);
        if is_run {
            self.ends()[last / BITS].fetch_and(!(1 << (last % BITS)), Relaxed);
        }
        is_run
    }
}
