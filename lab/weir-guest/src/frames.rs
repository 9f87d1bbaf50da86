//! Which pages of physical memory are free: one bit a page.
//!
//! The engine grows its window upwards from the low end. Everything else (its arrays, its buckets, blocks of their
//! own) is taken from the high end. So the two meet only when memory is short.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_core::base::run::Run;
use weir_core::base::units::PAGE;

/// The pages from `base` on, as far as there are bits for them.
pub struct Frames {
    base: usize,
    /// A set bit is a free page.
    free: &'static [AtomicU64],
    /// Behind the last page that was ever free: there are bits for far more memory than most machines have.
    end: usize,
}

impl Frames {
    /// No page is free. Page 0 of the bits is at `base`, a multiple of the page size.
    pub const fn new(base: usize, bits: &'static [AtomicU64]) -> Self {
        Self { base, free: bits, end: 0 }
    }

    /// The part of `run` in whole pages that there are bits for, as first page and count.
    fn pages(&self, run: Run) -> (usize, usize) {
        let end = ((run.addr + run.len).saturating_sub(self.base) / PAGE).min(self.free.len() * 64);
        let first = run.addr.saturating_sub(self.base).div_ceil(PAGE).min(end);
        (first, end - first)
    }

    /// Frees whatever whole pages there are in `run`; returns their bytes.
    pub fn give(&mut self, run: Run) -> usize {
        let (first, count) = self.pages(run);
        self.end = self.end.max(first + count);
        each_word(first, count, |i, mask| self.free[i].store(self.free[i].load(Relaxed) | mask, Relaxed));
        count * PAGE
    }

    /// Takes exactly the pages of `run`; `false` if any of them is not free.
    pub fn take_at(&mut self, run: Run) -> bool {
        let (first, count) = self.pages(run);
        let free = count * PAGE == run.len && self.last_taken(first, count).is_none();
        if free {
            self.clear(first, count);
        }
        free
    }

    /// Takes the highest free run of `len` bytes at a multiple of `align`; both are multiples of the page size.
    pub fn take(&mut self, len: usize, align: usize) -> Option<usize> {
        let pages = len / PAGE;
        let mut end = self.end;
        loop {
            // Nothing ends where no free page is.
            end = self.last_free(end)? + 1;
            let addr = (self.base + end.checked_sub(pages)? * PAGE) / align * align;
            let first = addr.checked_sub(self.base)? / PAGE;
            match self.last_taken(first, pages) {
                None => {
                    self.clear(first, pages);
                    return Some(addr);
                }
                Some(page) => end = page,
            }
        }
    }

    /// The longest run of free pages that begins at a multiple of `align`.
    pub fn longest(&self, align: usize) -> Run {
        let mut best = Run::default();
        let mut at = 0;
        while let Some(first) = self.next(at, true) {
            let end = self.next(first, false).unwrap_or(self.end);
            let (start, end_addr) = ((self.base + first * PAGE).next_multiple_of(align), self.base + end * PAGE);
            if end_addr.saturating_sub(start) > best.len {
                best = Run { addr: start, len: end_addr - start };
            }
            at = end;
        }
        best
    }

    /// Bytes free.
    pub fn free_bytes(&self) -> usize {
        self.free[..self.end.div_ceil(64)].iter().map(|word| word.load(Relaxed).count_ones() as usize * PAGE).sum()
    }

    fn clear(&mut self, first: usize, count: usize) {
        each_word(first, count, |i, mask| self.free[i].store(self.free[i].load(Relaxed) & !mask, Relaxed));
    }

    /// The last page of the range that is not free.
    fn last_taken(&self, first: usize, count: usize) -> Option<usize> {
        let mut last = None;
        each_word(first, count, |i, mask| {
            let taken = !self.free[i].load(Relaxed) & mask;
            if taken != 0 {
                last = Some(i * 64 + 63 - taken.leading_zeros() as usize);
            }
        });
        last
    }

    /// The last free page below `end`.
    fn last_free(&self, end: usize) -> Option<usize> {
        let word =
            |i: usize| self.free[i].load(Relaxed) & if i == end / 64 { !(u64::MAX << (end % 64)) } else { u64::MAX };
        let words = (0..end.div_ceil(64)).rev();
        words
            .map(|i| (i, word(i)))
            .find(|(_, bits)| *bits != 0)
            .map(|(i, bits)| i * 64 + 63 - bits.leading_zeros() as usize)
    }

    /// The first page from `at` on that is free (or, if not `free`, is taken).
    fn next(&self, at: usize, free: bool) -> Option<usize> {
        let word = |i: usize| {
            let bits = if free { self.free[i].load(Relaxed) } else { !self.free[i].load(Relaxed) };
            bits & if i == at / 64 { u64::MAX << (at % 64) } else { u64::MAX }
        };
        let mut words = (at / 64..self.end.div_ceil(64)).map(|i| (i, word(i)));
        words.find(|(_, bits)| *bits != 0).map(|(i, bits)| i * 64 + bits.trailing_zeros() as usize)
    }
}

/// Calls `f` with the index and the mask of each word that holds some of the `count` bits from `first`.
fn each_word(first: usize, count: usize, mut f: impl FnMut(usize, u64)) {
    let (mut at, end) = (first, first + count);
    while at < end {
        let n = (64 - at % 64).min(end - at);
        f(at / 64, u64::MAX >> (64 - n) << (at % 64));
        at += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 0x10_0000;

    fn frames(words: usize) -> Frames {
        Frames::new(BASE, Box::leak((0..words).map(|_| AtomicU64::new(0)).collect()))
    }

    fn run(page: usize, pages: usize) -> Run {
        Run { addr: BASE + page * PAGE, len: pages * PAGE }
    }

    #[test]
    fn only_whole_pages_within_reach_become_free() {
        let mut frames = frames(2);
        assert_eq!(frames.give(Run { addr: BASE + 1, len: 3 * PAGE }), 2 * PAGE);
        assert_eq!(frames.give(Run { addr: 0, len: BASE }), 0);
        assert_eq!(frames.give(Run { addr: BASE + 100 * PAGE, len: 1 << 40 }), 28 * PAGE);
        assert_eq!(frames.free_bytes(), 30 * PAGE);
        assert_eq!(frames.longest(PAGE), run(100, 28));
    }

    #[test]
    fn runs_are_taken_from_the_top_and_skip_what_is_taken() {
        let mut frames = frames(4);
        frames.give(run(0, 256));
        assert!(frames.take_at(run(250, 2)));
        assert!(!frames.take_at(run(249, 2)) && !frames.take_at(run(255, 2)));
        assert_eq!(frames.take(4 * PAGE, PAGE), Some(run(252, 0).addr));
        assert_eq!(frames.take(4 * PAGE, PAGE), Some(run(246, 0).addr));
        assert_eq!(frames.take(64 * PAGE, 64 * PAGE), Some(run(128, 0).addr));
        assert_eq!(frames.take(200 * PAGE, PAGE), None);
        frames.give(run(246, 4));
        assert_eq!(frames.take(PAGE, PAGE), Some(run(249, 0).addr));
        assert_eq!(frames.longest(16 * PAGE), run(0, 128));
        assert_eq!(frames.take(129 * PAGE, PAGE), None);
    }
}
