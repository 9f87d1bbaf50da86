//! Pages of a zone that the engine takes for resident, and that have no memory: they were given back because there was none.
//!
//! Whoever takes such a page has to ask for memory, as for a fresh one. A page is hollow until it got some, or was released. Its
//! bit is changed by who has the page: who has just taken it, or releases it. The zone's lock is between one and the next.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use weir_core::base::run::Run;
use weir_core::base::units::PAGE;

const BITS: usize = u64::BITS as usize;

/// The hollow pages of a zone: a bit for each page.
pub(super) struct Hollow {
    /// The zone's first byte.
    start: usize,
    bits: NonNull<[AtomicU64]>,
    /// How many there are: most often none.
    count: AtomicUsize,
}

// SAFETY: the bits are nothing else's, by the promise of `Hollow::new`, and belong to no thread.
unsafe impl Send for Hollow {}
// SAFETY: a shared reference reaches atomics alone.
unsafe impl Sync for Hollow {}

impl Hollow {
    /// Words for a zone of `size` bytes.
    pub const fn words(size: usize) -> usize {
        size.div_ceil(PAGE * BITS)
    }

    /// None, in a zone that begins at `start`.
    ///
    /// # Safety
    /// The bits are [`Hollow::words`] for it, all zero, and nothing else's as long as this lives.
    pub unsafe fn new(start: usize, bits: NonNull<[AtomicU64]>) -> Self {
        Self { start, bits, count: AtomicUsize::new(0) }
    }

    /// Whether one of the run's pages is hollow.
    #[inline]
    pub fn has(&self, run: Run) -> bool {
        self.count.load(Relaxed) > 0 && self.pieces(run).any(|(word, bits)| word.load(Relaxed) & bits != 0)
    }

    /// The run's pages are hollow from now on.
    pub fn add(&self, run: Run) {
        for (word, bits) in self.pieces(run) {
            let before = word.fetch_or(bits, Relaxed);
            self.count.fetch_add((bits & !before).count_ones() as usize, Relaxed);
        }
    }

    /// The run's pages are not hollow any more.
    pub fn remove(&self, run: Run) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        for (word, bits) in self.pieces(run) {
            let before = word.fetch_and(!bits, Relaxed);
            self.count.fetch_sub((bits & before).count_ones() as usize, Relaxed);
        }
    }

    /// The words that the run has bits in, and which.
    fn pieces(&self, run: Run) -> impl Iterator<Item = (&AtomicU64, u64)> {
        // SAFETY: `new` was promised that they live as long as this, and are atomics that nothing else uses.
        let words = unsafe { self.bits.as_ref() };
        let first = (run.addr - self.start) / PAGE;
        let end = first + run.len / PAGE;
        (first / BITS..end.div_ceil(BITS)).map(move |word| {
            let (from, to) = (first.saturating_sub(word * BITS), (end - word * BITS).min(BITS));
            (&words[word], u64::MAX >> (BITS - (to - from)) << from)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_hollow_from_add_to_remove() {
        const START: usize = 1 << 30;
        let words: Vec<AtomicU64> = (0..Hollow::words(2 << 20)).map(|_| AtomicU64::new(0)).collect();
        // SAFETY: words for 2 MiB, which live to the end of this test and are used by this alone.
        let hollow = unsafe { Hollow::new(START, NonNull::from(&words[..])) };
        let run = |first: usize, pages: usize| Run { addr: START + first * PAGE, len: pages * PAGE };
        for (first, pages) in [(0, 1), (0, 512), (63, 2), (1, 64), (64, 64), (100, 300), (511, 1)] {
            assert!(!hollow.has(run(0, 512)));
            hollow.add(run(first, pages));
            // Those of them that are so already do not count twice.
            hollow.add(run(first, 1));
            let all: Vec<usize> = (0..512).filter(|&page| hollow.has(run(page, 1))).collect();
            assert_eq!(all, (first..first + pages).collect::<Vec<_>>());
            assert_eq!(hollow.count.load(Relaxed), pages);
            hollow.remove(run(first, pages));
            hollow.remove(run(0, 512));
        }
    }
}
