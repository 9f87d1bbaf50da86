//! A histogram of times, with a bucket for each power of two of nanoseconds.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Buckets: bucket `i` counts times in `[2^i, 2^(i+1))` ns, the first also 0 and the last all that is longer (9 minutes).
pub const BUCKETS: usize = 40;

/// The histogram. Adding a time is one atomic addition: for slow paths.
#[repr(C)]
#[derive(Debug)]
pub struct Histogram {
    /// How many times fell in each bucket.
    pub counts: [AtomicU64; BUCKETS],
}

impl Histogram {
    /// Adds one time.
    pub(crate) fn note(&self, ns: u64) {
        self.counts[bucket_of(ns)].fetch_add(1, Relaxed);
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
    }
}

/// The bucket of a time.
pub const fn bucket_of(ns: u64) -> usize {
    let bucket = 63 - (ns | 1).leading_zeros() as usize;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_of_its_power_of_two() {
        let histogram = Histogram { counts: [const { AtomicU64::new(0) }; BUCKETS] };
        for (ns, bucket) in [(0, 0), (1, 0), (2, 1), (3, 1), (1 << 20, 20), ((1 << 21) - 1, 20), (u64::MAX >> 1, 39)] {
            assert_eq!(bucket_of(ns), bucket, "{ns}");
            histogram.note(ns);
        }
        let counts = histogram.counts.each_ref().map(|count| count.load(Relaxed));
        assert_eq!([counts[0], counts[1], counts[20], counts[39]], [2, 2, 2, 1]);
        assert_eq!(counts.iter().sum::<u64>(), 7);
        histogram.clear();
        assert!(histogram.counts.iter().all(|count| count.load(Relaxed) == 0));
    }
}
