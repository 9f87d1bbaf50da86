//! Histograms of times, as the format has them.

use crate::figures::times::Times;
use weir_core::telemetry::histogram::BUCKETS;

/// The upper ends of the buckets are powers of four from 2^10 ns (1 us) to 2^36 ns (69 s). A page's buckets are of powers of
/// two, so each two of them are one here. Half as many series tell percentiles to a factor of four.
const FIRST: usize = 10;
const LAST: usize = 36;
const STEP: usize = 2;

/// A histogram.
#[derive(Debug, PartialEq)]
pub struct Distribution {
    /// Sum of all times, seconds.
    pub sum: f64,
    pub count: u64,
    /// Upper end of each bucket, seconds, and how many times are in it and in none before it.
    pub buckets: Vec<(f64, u64)>,
}

impl Distribution {
    /// A histogram of times with this sum, ns. Where no sum is counted, it is estimated: each time as the middle of its bucket.
    pub fn of(times: &Times, sum_ns: Option<u64>) -> Self {
        let counts = times.counts();
        let (mut from, mut count) = (0, 0u64);
        // The page is the process's own, which may have written anything into it: the sum must not overflow.
        let mut part = |to: usize| {
            let all = counts.iter().take(to).skip(from);
            let sum = all.fold(0, |sum: u64, &part| sum.saturating_add(part)).min(u64::MAX - count);
            (from, count) = (to, count + sum);
            sum
        };
        let ends = (FIRST..=LAST).step_by(STEP);
        let mut buckets: Vec<_> = ends.map(|end| (seconds(1 << end), part(end))).collect();
        buckets.push((f64::INFINITY, part(BUCKETS)));
        let middle = |(i, &count): (usize, &u64)| 1.5 * seconds(1 << i) * count as f64;
        let estimate = || counts.iter().enumerate().map(middle).sum();
        Self { sum: sum_ns.map_or_else(estimate, seconds), count, buckets }
    }
}

/// Nanoseconds in the format's unit.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(counts: &[(usize, u64)]) -> Times {
        let mut all = vec![0; BUCKETS];
        counts.iter().for_each(|&(bucket, count)| all[bucket] = count);
        Times::from(all)
    }

    #[test]
    fn every_time_is_in_one_bucket() {
        let all = [(0, 1), (9, 2), (10, 4), (11, 8), (35, 16), (36, 32), (39, 64)];
        let it = Distribution::of(&times(&all), Some(2_500_000_000));
        assert_eq!((it.count, it.sum), (127, 2.5));
        assert_eq!(it.buckets.iter().map(|(_, count)| count).sum::<u64>(), 127);
        assert_eq!(it.buckets[..2], [(1024e-9, 3), (4096e-9, 12)]);
        assert_eq!(it.buckets[13..], [((1u64 << 36) as f64 / 1e9, 16), (f64::INFINITY, 96)]);
        assert!(it.buckets.is_sorted_by(|(a, _), (b, _)| a < b));
    }

    #[test]
    fn any_counts_add_up_to_a_number_and_an_estimated_sum_is_within_the_buckets() {
        let it = Distribution::of(&Times::from(vec![u64::MAX - 1; BUCKETS]), None);
        let sum = it.buckets.iter().try_fold(0u64, |sum, (_, count)| sum.checked_add(*count));
        assert_eq!((sum, it.count), (Some(u64::MAX), u64::MAX));
        let sum = Distribution::of(&times(&[(20, 3)]), None).sum;
        assert!((3.0 * seconds(1 << 20)..3.0 * seconds(1 << 21)).contains(&sum), "{sum}");
    }
}
