//! The statistics of every table: median, mean, spread, Student's t in the manner of `ministat`, geometric mean.

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::Statistics;

/// Repeated measurements of one thing, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Adds a measurement.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Each of them.
    pub fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().copied()
    }

    /// The middle one, or the mean of the two in the middle. NaN if there is none, as with all below.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        }
    }

    /// The arithmetic mean.
    pub fn mean(&self) -> f64 {
        Statistics::mean(&self.0)
    }

    /// The sample's variance (n - 1 in the denominator).
    pub fn variance(&self) -> f64 {
        Statistics::variance(&self.0)
    }

    /// The sample's standard deviation.
    pub fn stddev(&self) -> f64 {
        Statistics::std_dev(&self.0)
    }

    /// The least.
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    /// Every measurement and what they come to, for files that others read.
    pub fn json(&self) -> serde_json::Value {
        let known = |value: f64| value.is_finite().then_some(value);
        serde_json::json!({ "values": self.0, "median": known(self.median()), "mean": known(self.mean()),
                            "stddev": known(self.stddev()) })
    }

    /// The greatest.
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Sample(values.into_iter().collect())
    }
}

/// The result of Student's t-test on two samples' means, at 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Fewer than two measurements on a side.
    TooFew,
    /// No difference proven.
    NoDifference,
    /// The means differ by `difference`, give or take `interval`; both are also given as a share of the reference.
    Differs {
        /// Subject's mean less the reference's.
        difference: f64,
        /// Half the width of its confidence interval.
        interval: f64,
        /// The reference's mean.
        reference: f64,
    },
}

/// Compares `subject` with `reference` as `ministat` does: pooled variance, two sides, 95 %.
pub fn student(subject: &Sample, reference: &Sample) -> Verdict {
    let (n1, n2) = (subject.len() as f64, reference.len() as f64);
    if n1 < 2.0 || n2 < 2.0 {
        return Verdict::TooFew;
    }
    let freedom = subject.len() + reference.len() - 2;
    let pooled = (((n1 - 1.0) * subject.variance() + (n2 - 1.0) * reference.variance()) / freedom as f64).sqrt();
    let interval = t_quantile_95(freedom) * pooled * (1.0 / n1 + 1.0 / n2).sqrt();
    let difference = subject.mean() - reference.mean();
    if difference.abs() > interval {
        Verdict::Differs { difference, interval, reference: reference.mean() }
    } else {
        Verdict::NoDifference
    }
}

/// The geometric mean of ratios of pairs that were measured together, and its confidence interval by Student's t at 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// Geometric mean of the ratios; NaN of none.
    pub mean: f64,
    /// Half the width of the confidence interval of its logarithm; infinite of fewer than two.
    pub interval: f64,
}

impl Paired {
    /// Of these ratios, all above 0.
    pub fn of(ratios: &Sample) -> Paired {
        let logs: Sample = ratios.values().map(f64::ln).collect();
        let interval = match logs.len() {
            0 | 1 => f64::INFINITY,
            n => t_quantile_95(n - 1) * logs.stddev() / (n as f64).sqrt(),
        };
        Paired { mean: logs.mean().exp(), interval }
    }

    /// Whether it is proven not to be 1.
    pub fn differs(&self) -> bool {
        self.mean.ln().abs() > self.interval
    }
}

impl std::fmt::Display for Paired {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let proven = if self.differs() { "" } else { ": no difference proven" };
        write!(f, "{:+.1} % ± {:.1} %{proven}", (self.mean - 1.0) * 100.0, self.interval * self.mean * 100.0)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match *self {
            Verdict::TooFew => write!(f, "too few runs for a verdict"),
            Verdict::NoDifference => write!(f, "no difference proven at 95.0 % confidence"),
            Verdict::Differs { difference, interval, reference } => {
                let share = 100.0 / reference;
                write!(f, "{:+.1} % ± {:.1} %", difference * share, interval * share.abs())
            }
        }
    }
}

/// Student's t that leaves 2.5 % on each side, by degrees of freedom.
pub fn t_quantile_95(freedom: usize) -> f64 {
    StudentsT::new(0.0, 1.0, freedom as f64).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

/// The geometric mean of positive ratios; `None` of none, or if one is not a number.
pub fn geometric_mean(ratios: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mean = Statistics::geometric_mean(ratios.into_iter());
    (!mean.is_nan()).then_some(mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: &[f64]) -> Sample {
        values.iter().copied().collect()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3
    }

    #[test]
    fn middle_and_spread() {
        let odd = sample(&[9.0, 2.0, 4.0, 5.0, 4.0, 7.0, 5.0, 4.0, 5.0]);
        assert_eq!((odd.median(), odd.mean(), odd.min(), odd.max()), (5.0, 5.0, 2.0, 9.0));
        assert_eq!(odd.variance(), 4.0);
        assert_eq!(odd.stddev(), 2.0);
        assert_eq!(sample(&[4.0, 1.0, 3.0, 2.0]).median(), 2.5);
        for none in [sample(&[]).median(), sample(&[]).mean(), sample(&[]).variance(), sample(&[1.0]).variance()] {
            assert!(none.is_nan());
        }
    }

    #[test]
    fn quantiles_of_the_published_tables() {
        for (freedom, t) in [(1, 12.706), (8, 2.306), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980)] {
            assert!(close(t_quantile_95(freedom), t), "{freedom}: {}", t_quantile_95(freedom));
        }
        assert!(t_quantile_95(31) < t_quantile_95(30));
        assert_eq!(t_quantile_95(0), f64::INFINITY);
    }

    #[test]
    fn equal_samples_do_not_differ_and_far_ones_do() {
        let a = sample(&[10.0, 11.0, 9.0, 10.0, 10.0]);
        assert_eq!(student(&a, &a), Verdict::NoDifference);
        // Means 10 and 20, both variances 0.5: interval = 2.306 * sqrt(0.5) * sqrt(2/5) = 1.0313.
        let b = sample(&[20.0, 21.0, 19.0, 20.0, 20.0]);
        let Verdict::Differs { difference, interval, reference } = student(&b, &a) else {
            panic!("no difference seen")
        };
        assert!(close(difference, 10.0) && close(interval, 1.0313) && reference == 10.0, "{difference} {interval}");
        assert_eq!(student(&b, &a).to_string(), "+100.0 % ± 10.3 %");
        assert_eq!(student(&a, &sample(&[1.0])), Verdict::TooFew);
    }

    #[test]
    fn pairs_are_judged_by_their_ratios() {
        // Logarithms -0.1, 0.1 and 0.3: mean 0.1, deviation 0.2, interval 4.303 * 0.2 / sqrt(3) = 0.4969.
        let scattered = Paired::of(&sample(&[-0.1f64, 0.1, 0.3].map(f64::exp)));
        assert!(close(scattered.mean, 0.1f64.exp()) && close(scattered.interval, 0.4969) && !scattered.differs());
        assert_eq!(Paired::of(&sample(&[1.1, 1.1, 1.1])).to_string(), "+10.0 % ± 0.0 %");
        assert!(!Paired::of(&sample(&[2.0])).differs() && !Paired::of(&sample(&[])).differs());
    }

    #[test]
    fn a_difference_just_inside_the_interval_is_none() {
        // Pooled deviation 1, n = 5 each: the interval is 2.306 * sqrt(0.4) = 1.4585.
        let spread = [-1.264_911, -0.632_456, 0.0, 0.632_456, 1.264_911];
        let at = |centre: f64| spread.iter().map(|x| x + centre).collect::<Sample>();
        assert_eq!(student(&at(11.45), &at(10.0)), Verdict::NoDifference);
        assert!(matches!(student(&at(11.47), &at(10.0)), Verdict::Differs { .. }));
    }

    #[test]
    fn geometric_means() {
        assert!(close(geometric_mean([1.0, 4.0]).unwrap(), 2.0));
        assert!(close(geometric_mean([2.0, 4.0, 8.0]).unwrap(), 4.0));
        assert_eq!(geometric_mean([]), None);
    }
}
