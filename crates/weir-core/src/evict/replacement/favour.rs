//! What a cache is to have the most of for its memory: entries that are found, or bytes.
//!
//! Where all entries weigh the same the two are one. Where they differ, an entry is worth its hits for each byte that it takes, if
//! found entries count: ten small ones that are hit once are worth more than a large one that is hit twice. If found bytes count,
//! the weight of an entry is on both sides, and its hits alone decide.

use super::slot::MOST_HITS;

/// What a cache is to have the most of for its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Favour {
    /// Look-ups that find their key: as where each miss costs about the same.
    #[default]
    Entries,
    /// Bytes that are found: as where a miss costs as much as the entry is large, such as a transfer.
    Bytes,
}

impl Favour {
    /// Whether a key that was seen so often, and weighs so much, is worth more than another.
    pub(crate) const fn is_worth_more(
        self,
        (seen, weight): (u64, usize),
        (others, other_weight): (u64, usize),
    ) -> bool {
        match self {
            Self::Entries => seen as u128 * other_weight as u128 > others as u128 * weight as u128,
            Self::Bytes => seen > others,
        }
    }

    /// Whether an entry that was hit so often is worth as much as one of the mean weight that was hit `needed` times.
    pub(crate) const fn has_earned(self, hits: u8, weight: usize, needed: u8, all: Weights) -> bool {
        match self {
            Self::Entries => hits as u128 * all.sum as u128 >= needed as u128 * all.times_mean(weight),
            Self::Bytes => hits >= needed,
        }
    }

    /// Hits that it costs an entry to stay in the main queue when its turn comes: one, where it weighs as much as others. Else as
    /// many as its weight is times theirs, in the mean over what `draw` draws. So what is light goes round without a hit, and what
    /// is heavy needs several. [`MOST_HITS`] are always enough: that many are all that can be counted.
    pub(crate) fn cost(self, weight: usize, all: Weights, draw: impl FnOnce() -> u32) -> u8 {
        let (mut left, mean) = (all.times_mean(weight), all.sum as u128);
        if self == Self::Bytes || left == mean {
            return 1;
        }
        let mut whole = 0;
        while left >= mean && whole < MOST_HITS {
            (left, whole) = (left - mean, whole + 1);
        }
        let has_rest = whole < MOST_HITS && u128::from(draw()) * mean < left << u32::BITS;
        whole + u8::from(has_rest)
    }
}

/// What some entries weigh together. Their mean is not reckoned: a division takes as long as the rest of a look at an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    pub sum: usize,
    pub count: usize,
}

impl Weights {
    /// How many times the mean something weighs, times the sum.
    pub(crate) const fn times_mean(self, weight: usize) -> u128 {
        weight as u128 * self.count as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two entries of such a mean weight.
    const fn of_mean(mean: usize) -> Weights {
        Weights { sum: 2 * mean, count: 2 }
    }

    #[test]
    fn a_pass_costs_what_the_weight_is_in_the_mean() {
        for (weight, hundredths) in [(100, 100), (50, 50), (250, 250), (1, 1), (9000, 300)] {
            let cost = |part: u32| u64::from(Favour::Entries.cost(weight, of_mean(100), || part * (u32::MAX / 1000)));
            let sum = (0..1000).map(cost).sum::<u64>();
            assert!(sum.abs_diff(hundredths * 10) <= 1, "{weight}: {sum} for 1,000 passes");
        }
        assert_eq!(Favour::Bytes.cost(1, of_mean(100), || 0), 1);
        let most = Weights { sum: usize::MAX, count: 1 };
        assert_eq!(Favour::Entries.cost(usize::MAX, most, || 0), 1);
        assert_eq!(Favour::Entries.cost(usize::MAX, of_mean(1), || 0), MOST_HITS);
        assert_eq!(Favour::Entries.cost(0, Weights { sum: 0, count: 3 }, || 0), 1, "all weigh nothing");
    }

    #[test]
    fn weight_counts_for_entries_and_not_for_bytes() {
        assert!(Favour::Entries.is_worth_more((1, 10), (5, 100)));
        assert!(!Favour::Bytes.is_worth_more((1, 10), (5, 100)));
        assert!(!Favour::Entries.is_worth_more((2, 10), (2, 10)) && Favour::Entries.is_worth_more((3, 10), (2, 10)));
        assert!(!Favour::Entries.is_worth_more((15, usize::MAX), (15, usize::MAX)));
        let mean = of_mean(100);
        assert!(Favour::Entries.has_earned(2, 100, 2, mean) && !Favour::Entries.has_earned(2, 101, 2, mean));
        assert!(Favour::Entries.has_earned(1, 50, 2, mean) && !Favour::Bytes.has_earned(1, 50, 2, mean));
    }
}
