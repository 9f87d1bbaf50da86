//! The recommendation of the Vertical Pod Autoscaler for memory, as its documentation has it (version 1.8, `docs/flags.md`).
//!
//! A sample is the most that was used within a day. Samples are kept in a histogram whose buckets grow by 5 % from 10 MB on, and lose
//! half their weight a day. The target is the 90th percentile, the bounds are the 50th and the 95th; each has 15 % added. The bounds
//! widen with a short history. A container that the kernel killed counts as having used 20 % or 100 MiB more.

use crate::shapes::MIB;

const FIRST_BUCKET: f64 = 1e7;
const GROWTH: f64 = 1.05;
const BUCKETS: usize = 176; // up to 1 TB
const HALF_LIFE: f64 = 1.0; // days
const MARGIN: f64 = 0.15;
const LEAST: f64 = 250.0 * MIB; // `pod-recommendation-min-memory-mb`

/// What the recommender knows of one container.
#[derive(Clone, Debug)]
pub struct Histogram {
    weights: [f64; BUCKETS],
    /// The most of the day that is not over, and that day.
    today: Option<(u32, f64)>,
    first_day: Option<u32>,
}

/// What is recommended, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recommendation {
    /// What the request should be.
    pub target: f64,
    /// Below this the request is raised whatever the age of the pod.
    pub lower: f64,
    /// Above this the request is lowered whatever the age of the pod.
    pub upper: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { weights: [0.0; BUCKETS], today: None, first_day: None }
    }
}

impl Histogram {
    /// Usage that was seen on a day. Only the most of a day counts.
    pub fn see(&mut self, day: u32, bytes: f64) {
        self.first_day.get_or_insert(day);
        match self.today {
            Some((today, most)) if today == day => {
                if bytes > most {
                    self.weights[bucket(most)] -= weight(day);
                    self.weights[bucket(bytes)] += weight(day);
                    self.today = Some((day, bytes));
                }
            }
            _ => {
                self.weights[bucket(bytes)] += weight(day);
                self.today = Some((day, bytes));
            }
        }
    }

    /// A kill by the kernel at a usage: a sample of its own.
    pub fn see_kill(&mut self, day: u32, bytes: f64) {
        self.weights[bucket((bytes * 1.2).max(bytes + 100.0 * MIB))] += weight(day);
    }

    /// What to ask for, after a history that ends at `now`, in days.
    pub fn recommend(&self, now: f64) -> Recommendation {
        let history = (now - f64::from(self.first_day.unwrap_or(0))).max(1e-3);
        let [half, most, nearly_all] = self.percentiles([0.5, 0.9, 0.95]).map(|bytes| bytes * (1.0 + MARGIN));
        Recommendation {
            target: most.max(LEAST),
            lower: (half * (1.0 + 0.001 / history).powi(-2)).max(LEAST),
            upper: (nearly_all * (1.0 + 1.0 / history)).max(LEAST),
        }
    }

    /// The ends of the buckets at which these parts of all weight are reached; they rise.
    fn percentiles(&self, parts: [f64; 3]) -> [f64; 3] {
        let all: f64 = self.weights.iter().sum();
        let mut found = [0.0; 3];
        let (mut sum, mut next) = (0.0, 0);
        for (index, weight) in self.weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            sum += weight;
            while next < parts.len() && sum >= parts[next] * all * (1.0 - 1e-9) {
                found[next] = end_of(index);
                next += 1;
            }
        }
        found
    }
}

/// Weights grow instead of decaying: a sample of a later day counts more.
fn weight(day: u32) -> f64 {
    (f64::from(day) / HALF_LIFE).exp2()
}

/// Bucket `i` begins at `FIRST_BUCKET * (GROWTH^i - 1) / (GROWTH - 1)`: the sum of the buckets before.
fn bucket(bytes: f64) -> usize {
    let place = (bytes * (GROWTH - 1.0) / FIRST_BUCKET + 1.0).ln() / GROWTH.ln();
    (place.max(0.0) as usize).min(BUCKETS - 1)
}

fn end_of(bucket: usize) -> f64 {
    FIRST_BUCKET * (GROWTH.powi(bucket as i32 + 1) - 1.0) / (GROWTH - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = 1024.0 * MIB;

    #[test]
    fn a_steady_peak_is_recommended_with_its_margin_and_at_most_a_bucket_more() {
        let mut histogram = Histogram::default();
        for day in 0..8 {
            histogram.see(day, 0.5 * GIB);
            histogram.see(day, GIB);
            histogram.see(day, 0.1 * GIB);
        }
        let target = histogram.recommend(8.0).target;
        assert!((GIB * 1.15..GIB * 1.15 * 1.06).contains(&target), "{} MiB", target / MIB);
    }

    #[test]
    fn a_peak_of_eight_days_ago_is_forgotten_and_one_of_yesterday_is_not() {
        let peaks = |high: u32| {
            let mut histogram = Histogram::default();
            (0..8).for_each(|day| histogram.see(day, if day == high { 4.0 * GIB } else { GIB }));
            histogram.recommend(8.0).target
        };
        assert!(peaks(0) < 1.3 * GIB);
        assert!(peaks(7) > 4.0 * GIB);
    }

    #[test]
    fn a_kill_raises_what_is_recommended() {
        let mut histogram = Histogram::default();
        histogram.see(0, GIB);
        let before = histogram.recommend(1.0).target;
        histogram.see_kill(0, GIB);
        assert!(histogram.recommend(1.0).target >= before * 1.15);
    }

    #[test]
    fn bounds_widen_with_a_short_history() {
        let mut histogram = Histogram::default();
        histogram.see(0, GIB);
        let (young, old) = (histogram.recommend(0.5), histogram.recommend(8.0));
        assert!(young.upper > 2.5 * old.upper && young.lower < old.lower);
        assert!(old.lower <= old.target && old.target <= old.upper);
    }

    #[test]
    fn little_is_never_recommended() {
        assert_eq!(Histogram::default().recommend(1.0).target, LEAST);
    }
}
