//! Histograms of times: how many were in `[2^i, 2^(i+1))` ns.

use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::histogram::{BUCKETS, Histogram};

/// Counts up to the last bucket that has any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u64>")]
pub struct Times(Vec<u64>);

impl From<Vec<u64>> for Times {
    fn from(mut counts: Vec<u64>) -> Self {
        counts.truncate(BUCKETS);
        counts.truncate(counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1));
        Self(counts)
    }
}

impl From<&Histogram> for Times {
    fn from(it: &Histogram) -> Self {
        Self::sum([it].into_iter())
    }
}

impl Times {
    /// The sum over several processes.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Histogram>) -> Self {
        let mut sums = vec![0u64; BUCKETS];
        for it in all {
            sums.iter_mut().zip(&it.counts).for_each(|(sum, count)| *sum = sum.saturating_add(count.load(Relaxed)));
        }
        Self::from(sums)
    }

    pub fn counts(&self) -> &[u64] {
        &self.0
    }

    pub fn count(&self) -> u64 {
        self.0.iter().copied().fold(0, u64::saturating_add)
    }

    /// The upper end of the bucket in which this share of the times ends, ns; none: there is no time.
    pub fn below(&self, share: f64) -> Option<u64> {
        // As real numbers, of which no sum is too large.
        let all: f64 = self.0.iter().map(|&count| count as f64).sum();
        let mut sum = 0.0;
        let bucket = self.0.iter().position(|&count| {
            sum += count as f64;
            sum >= all * share && sum > 0.0
        });
        bucket.map(|bucket| 2 << bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_end_at_the_end_of_their_bucket() {
        let it = Times::from(vec![0, 0, 0, 98, 0, 2, 0]);
        assert_eq!((it.counts().len(), it.count()), (6, 100));
        assert_eq!([0.0, 0.5, 0.98, 0.99, 1.0].map(|share| it.below(share)), [16, 16, 16, 64, 64].map(Some));
        assert_eq!(Times::from(vec![0; 9]).below(0.5), None);
        let most = Times::from(vec![u64::MAX; 70]);
        assert_eq!((most.counts().len(), most.count(), most.below(1.0)), (BUCKETS, u64::MAX, Some(2 << (BUCKETS - 1))));
    }
}
