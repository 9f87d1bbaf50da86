//! A set of a pageblock's 512 pages, and the free areas that are derived from it: runs, aligned blocks, orders.

use core::ops::Range;

use crate::base::units::{Order, PAGEBLOCK_PAGES, Pages};

pub(super) const WORDS: usize = PAGEBLOCK_PAGES / 64;

/// A set of a pageblock's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSet(pub [u64; WORDS]);

impl PageSet {
    /// No page.
    pub const EMPTY: Self = Self([0; WORDS]);
    /// All pages of a pageblock.
    pub const FULL: Self = Self([u64::MAX; WORDS]);

    /// The pages `range`.
    pub fn range(range: Range<usize>) -> Self {
        let mut set = Self::EMPTY;
        set.insert(range);
        set
    }

    /// The words of the pages `range`, and in each the bits of those pages.
    fn words(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
        let Range { start, end } = range;
        (start / 64..end.div_ceil(64)).map(move |word| {
            let from = if word == start / 64 { start % 64 } else { 0 };
            let last = if word == (end - 1) / 64 { (end - 1) % 64 } else { 63 };
            (word, u64::MAX << from & u64::MAX >> (63 - last))
        })
    }

    /// Adds a range.
    pub(crate) fn insert(&mut self, range: Range<usize>) {
        Self::words(range).for_each(|(i, mask)| self.0[i] |= mask);
    }

    /// Takes a range out.
    pub(crate) fn remove(&mut self, range: Range<usize>) {
        Self::words(range).for_each(|(i, mask)| self.0[i] &= !mask);
    }

    /// Whether all pages of a range are in the set.
    pub(crate) fn has_range(&self, range: Range<usize>) -> bool {
        Self::words(range).fold(0, |missing, (i, mask)| missing | mask & !self.0[i]) == 0
    }

    /// How many pages of a range are in the set.
    pub(crate) fn count_range(&self, range: Range<usize>) -> Pages {
        self.and(&Self::range(range)).len()
    }

    /// Pages in the set.
    pub fn len(&self) -> Pages {
        Pages(self.0.iter().map(|w| w.count_ones() as usize).sum())
    }

    /// Whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&w| w == 0)
    }

    /// Every page moved up by `by`; those that leave the pageblock are dropped.
    pub(crate) fn shifted(&self, by: usize) -> Self {
        let mut set = Self::EMPTY;
        for run in self.runs().take_while(|run| run.start + by < PAGEBLOCK_PAGES) {
            set.insert(run.start + by..(run.end + by).min(PAGEBLOCK_PAGES));
        }
        set
    }

    /// Pages in both.
    pub fn and(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Pages in either.
    pub(crate) fn or(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Pages in this set and not in `other`.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Those of its pages that fill whole aligned blocks of `order`: at most 6, or a pageblock's.
    #[inline]
    pub(crate) fn whole(&self, order: Order) -> Self {
        match order.0 {
            0 => *self,
            order @ 1..=6 => Self(self.0.map(|word| filled_blocks(word, order))),
            _ if self.is_full() => Self::FULL,
            _ => Self::EMPTY,
        }
    }

    /// The runs of pages, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let mut at = 0;
        core::iter::from_fn(move || {
            let first = self.next_bit(at, false)?;
            at = self.next_bit(first, true).unwrap_or(PAGEBLOCK_PAGES);
            Some(first..at)
        })
    }

    /// The first page of the shortest run of at least `pages`, and of those the first. Runs are of any length, so that
    /// no branch depends on what is found: one for each run would be predicted wrong too often.
    pub(crate) fn best_run(&self, pages: Pages) -> Option<usize> {
        let (mut carry, mut first, mut best) = (0, 0, u32::MAX);
        // Behind the last page ends what is left.
        for (i, &word) in self.0.iter().chain(&[0]).enumerate() {
            let (base, before) = (i as u32 * 64, word << 1 | carry);
            let (mut starts, mut ends) = (word & !before, before & !word);
            // Where the next run begins. What is no page, as none begins in this word, is not looked at.
            let mut next = || {
                let first = base + starts.trailing_zeros();
                starts &= starts.wrapping_sub(1);
                first
            };
            if carry == 0 {
                first = next();
            }
            while ends != 0 {
                let len = base + ends.trailing_zeros() - first;
                let run = if len as usize >= pages.0 { len << 16 | first } else { u32::MAX };
                best = best.min(run);
                ends &= ends - 1;
                first = next();
            }
            carry = word >> 63;
        }
        (best != u32::MAX).then_some((best & 0xffff) as usize)
    }

    fn next_bit(&self, from: usize, inverted: bool) -> Option<usize> {
        let mut at = from;
        while at < PAGEBLOCK_PAGES {
            let word = if inverted { !self.0[at / 64] } else { self.0[at / 64] } >> (at % 64);
            if word != 0 {
                return Some(at + word.trailing_zeros() as usize);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// The first page of the first aligned block of `order` (at most 8 here) that lies whole in the set.
    pub(crate) fn find_block(&self, order: u32) -> Option<usize> {
        if order > 6 {
            let words = 1 << (order - 6);
            let at = (0..WORDS).step_by(words).find(|&w| self.0[w..w + words].iter().all(|&x| x == u64::MAX))?;
            return Some(at * 64);
        }
        self.0.iter().enumerate().find_map(|(i, &word)| {
            let starts = aligned_blocks(word, order);
            (starts != 0).then(|| i * 64 + starts.trailing_zeros() as usize)
        })
    }

    /// The largest order of which a whole aligned block lies in the set; `None` when it is empty.
    #[inline]
    pub(crate) fn max_order(&self) -> Option<u32> {
        // One word tells all orders from 3 on.
        let mut blocks = self.whole_bytes();
        if blocks == 0 {
            return (0..3).rev().find(|&order| self.0.iter().any(|&word| aligned_blocks(word, order) != 0));
        }
        let mut order = 3;
        for (step, starts) in STARTS[1..].iter().enumerate() {
            blocks &= blocks >> (1 << step) & starts;
            order += u32::from(blocks != 0);
        }
        Some(order)
    }

    /// Bit i: all of pages 8 * i to 8 * i + 7 are in the set.
    #[cfg(target_arch = "x86_64")]
    fn whole_bytes(&self) -> u64 {
        use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
        // SSE2, which each processor of this kind has.
        let of = |pair: usize| {
            let (low, high) = (self.0[2 * pair] as i64, self.0[2 * pair + 1] as i64);
            // SAFETY: they compute with registers alone, by SSE2.
            unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_set_epi64x(high, low), _mm_set1_epi8(-1))) as u64 }
        };
        of(0) | of(1) << 16 | of(2) << 32 | of(3) << 48
    }

    /// [`PageSet::whole_bytes`] on other processors.
    #[cfg(not(target_arch = "x86_64"))]
    fn whole_bytes(&self) -> u64 {
        self.0
            .iter()
            .rev()
            .flat_map(|word| word.to_le_bytes().into_iter().rev())
            .fold(0, |bits, byte| bits << 1 | u64::from(byte == u8::MAX))
    }

    /// Whether every page is in the set.
    pub(crate) fn is_full(&self) -> bool {
        self.0.iter().all(|&w| w == u64::MAX)
    }

    /// Pages in a row from the first on.
    pub(crate) fn len_at_start(&self) -> Pages {
        Pages(self.next_bit(0, true).unwrap_or(PAGEBLOCK_PAGES))
    }

    /// Pages in a row up to the last.
    pub(crate) fn len_at_end(&self) -> Pages {
        let full = self.0.iter().rev().take_while(|&&w| w == u64::MAX).count();
        let rest = self.0.iter().rev().nth(full).map_or(0, |w| w.leading_ones() as usize);
        Pages(full * 64 + rest)
    }
}

/// The bits of a word at which aligned blocks of orders 0 to 6 begin.
const STARTS: [u64; 7] = [
    u64::MAX,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];

/// Bits of `word` at which an aligned block of `order` (at most 6) begins that is all ones.
fn aligned_blocks(mut word: u64, order: u32) -> u64 {
    for i in 0..order {
        word &= word >> (1 << i);
    }
    word & STARTS[order as usize]
}

/// The bits of `word` that fill whole aligned blocks of `order` (at most 6).
pub(crate) fn filled_blocks(word: u64, order: u32) -> u64 {
    (0..order).fold(aligned_blocks(word, order), |bits, i| bits | bits << (1 << i))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slow_find(set: &PageSet, order: u32) -> Option<usize> {
        let has = |p: usize| set.0[p / 64] >> (p % 64) & 1 == 1;
        (0..PAGEBLOCK_PAGES).step_by(1 << order).find(|&s| (s..s + (1 << order)).all(has))
    }

    proptest! {
        #[test]
        fn find_block_matches_a_plain_scan(ranges in prop::collection::vec((0usize..512, 1usize..200), 0..12)) {
            let mut set = PageSet::EMPTY;
            for (first, n) in ranges {
                set.insert(first..512.min(first + n));
            }
            for order in 0..9 {
                prop_assert_eq!(set.find_block(order), slow_find(&set, order));
            }
            for order in (0..=6).chain([9]) {
                let mut whole = PageSet::EMPTY;
                for first in (0..512).step_by(1 << order).filter(|&at| set.has_range(at..at + (1 << order))) {
                    whole.insert(first..first + (1 << order));
                }
                prop_assert_eq!(set.whole(Order(order)), whole);
            }
            let max = (0..=9).rev().find(|&o| slow_find(&set, o).is_some());
            prop_assert_eq!(set.max_order(), max);
            let has = |p: &usize| set.0[p / 64] >> (p % 64) & 1 == 1;
            prop_assert_eq!(set.len_at_start().0, (0..512).take_while(has).count());
            prop_assert_eq!(set.len_at_end().0, (0..512).rev().take_while(has).count());
        }

        #[test]
        fn shifted_moves_every_page_up(
            ranges in prop::collection::vec((0usize..512, 1usize..200), 0..12),
            by in 0usize..=512,
        ) {
            let mut set = PageSet::EMPTY;
            for (first, n) in ranges {
                set.insert(first..512.min(first + n));
            }
            let moved = set.shifted(by);
            let has = |set: &PageSet, p: usize| set.0[p / 64] >> (p % 64) & 1 == 1;
            prop_assert!((0..512).all(|p| has(&moved, p) == (p >= by && has(&set, p - by))));
        }

        #[test]
        fn runs_cover_the_set(ranges in prop::collection::vec((0usize..512, 1usize..60), 0..12)) {
            let mut set = PageSet::EMPTY;
            for (first, n) in ranges {
                set.insert(first..512.min(first + n));
            }
            let (mut rebuilt, mut at) = (PageSet::EMPTY, None);
            for run in set.runs() {
                prop_assert!(at < Some(run.start) && !run.is_empty());
                at = Some(run.end);
                rebuilt.insert(run);
            }
            prop_assert_eq!(rebuilt, set);
            for pages in 1..=PAGEBLOCK_PAGES {
                let best = set.runs().filter(|run| run.len() >= pages).min_by_key(|run| run.len()).map(|run| run.start);
                prop_assert_eq!(set.best_run(Pages(pages)), best);
            }
        }
    }
}
