//! The statistics of every table: median, mean, spread, Student's t in the manner of `ministat`, geometric mean.

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::{Data, OrderStatistics, Statistics};

/// The values that were measured in the rounds.
#[derive(Clone, Debug, Default)]
pub struct Sample(pub Vec<f64>);

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Sample(values.into_iter().collect())
    }
}

impl Sample {
    pub fn median(&self) -> f64 {
        if self.0.is_empty() { f64::NAN } else { Data::new(self.0.clone()).median() }
    }

    pub fn mean(&self) -> f64 {
        Statistics::mean(&self.0)
    }

    pub fn stddev(&self) -> f64 {
        Statistics::std_dev(&self.0)
    }

    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// The least value that a part of all is not above.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len() as f64 * part).ceil() as usize;
        sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    /// The median, and the least and the most of several.
    pub fn spread(&self, show: impl Fn(f64) -> String) -> String {
        match self.0.len() {
            0 | 1 => show(self.median()),
            _ => format!("{} ({}..{})", show(self.median()), show(self.min()), show(self.max())),
        }
    }

    pub fn json(&self) -> serde_json::Value {
        let known = |value: f64| value.is_finite().then_some(value);
        let (median, mean, stddev) = (known(self.median()), known(self.mean()), known(self.stddev()));
        serde_json::json!({ "values": self.0, "median": median, "mean": mean, "stddev": stddev })
    }
}

fn t_quantile_95(freedom: usize) -> f64 {
    StudentsT::new(0.0, 1.0, freedom as f64).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

/// The difference of two means and its interval at 95 % in percent of the reference, or that none is proven.
pub fn student(subject: &Sample, reference: &Sample) -> String {
    let (n1, n2) = (subject.0.len() as f64, reference.0.len() as f64);
    if n1 < 2.0 || n2 < 2.0 {
        return "too few runs for a verdict".into();
    }
    let (freedom, variance) = (n1 + n2 - 2.0, |sample: &Sample| Statistics::variance(&sample.0));
    let pooled = (((n1 - 1.0) * variance(subject) + (n2 - 1.0) * variance(reference)) / freedom).sqrt();
    let interval = t_quantile_95(freedom as usize) * pooled * (1.0 / n1 + 1.0 / n2).sqrt();
    let difference = subject.mean() - reference.mean();
    if difference.is_nan() || difference.abs() <= interval {
        return "no difference proven".into();
    }
    let share = 100.0 / reference.mean();
    format!("{:+.1} % ± {:.1} %", difference * share, interval * share.abs())
}

/// The geometric mean of the ratios of pairs, and its interval at 95 % as a difference of logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    pub mean: f64,
    pub interval: f64,
}

impl Paired {
    pub fn of(ratios: &Sample) -> Paired {
        let logs: Sample = ratios.0.iter().map(|ratio| ratio.ln()).collect();
        let interval = match logs.0.len() {
            0 | 1 => f64::INFINITY,
            n => t_quantile_95(n - 1) * logs.stddev() / (n as f64).sqrt(),
        };
        Paired { mean: logs.mean().exp(), interval }
    }
}

impl std::fmt::Display for Paired {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let proven = if self.mean.ln().abs() > self.interval { "" } else { ": no difference proven" };
        write!(f, "{:+.1} % ± {:.1} %{proven}", (self.mean - 1.0) * 100.0, self.interval * self.mean * 100.0)
    }
}

/// The geometric mean; of no value there is none.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Some(Statistics::geometric_mean(values.into_iter())).filter(|mean| !mean.is_nan())
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
        assert_eq!((odd.median(), odd.mean(), odd.min(), odd.max(), odd.stddev()), (5.0, 5.0, 2.0, 9.0, 2.0));
        assert_eq!(sample(&[4.0, 1.0, 3.0, 2.0]).median(), 2.5);
        assert!([sample(&[]).median(), sample(&[]).mean(), sample(&[1.0]).stddev()].iter().all(|none| none.is_nan()));
        let fifty: Sample = (1..=50).map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|part| fifty.quantile(part)), [25.0, 50.0, 50.0]);
    }

    #[test]
    fn quantiles_of_the_published_tables() {
        for (freedom, t) in [(1, 12.706), (8, 2.306), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980)] {
            assert!(close(t_quantile_95(freedom), t), "{freedom}: {}", t_quantile_95(freedom));
        }
        assert_eq!(t_quantile_95(0), f64::INFINITY);
    }

    #[test]
    fn equal_samples_do_not_differ_and_far_ones_do() {
        let a = sample(&[10.0, 11.0, 9.0, 10.0, 10.0]);
        let b = sample(&[20.0, 21.0, 19.0, 20.0, 20.0]);
        assert_eq!(student(&a, &a), "no difference proven");
        assert_eq!(student(&b, &a), "+100.0 % ± 10.3 %");
        assert_eq!(student(&a, &sample(&[1.0])), "too few runs for a verdict");
        // 1.46 is the interval of two such samples.
        let spread = [-1.264_911, -0.632_456, 0.0, 0.632_456, 1.264_911];
        let at = |centre: f64| spread.iter().map(|x| x + centre).collect::<Sample>();
        assert_eq!(student(&at(11.45), &at(10.0)), "no difference proven");
        assert!(student(&at(11.47), &at(10.0)).starts_with("+14.7 %"));
    }

    #[test]
    fn pairs_are_judged_by_their_ratios() {
        let scattered = Paired::of(&sample(&[-0.1f64, 0.1, 0.3].map(f64::exp)));
        assert!(close(scattered.mean, 0.1f64.exp()) && close(scattered.interval, 0.4969));
        assert_eq!(Paired::of(&sample(&[1.1, 1.1, 1.1])).to_string(), "+10.0 % ± 0.0 %");
        assert!(Paired::of(&sample(&[2.0])).to_string().ends_with("no difference proven"));
        assert!(close(geometric_mean([2.0, 4.0, 8.0]).unwrap(), 4.0) && geometric_mean([]).is_none());
    }
}
