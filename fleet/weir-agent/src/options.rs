//! The command line.

use crate::policy::quantity;
use clap::{Parser, ValueEnum};
use std::net::SocketAddr;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::time::Duration;
use weir_policy::limits::Rules;

/// Shows what the pods of this node need of memory, lowers what they do not, and raises it again. It never kills.
#[derive(Clone, Debug, Parser)]
#[command(name = "weir-agent", version)]
pub struct Options {
    /// Name of this node. Without it only the metrics of groups are served, and no API is asked.
    #[arg(long, env = "NODE_NAME")]
    pub node: Option<String>,
    /// Where metrics are served, at /metrics.
    #[arg(long, default_value = "127.0.0.1:19348")]
    pub listen: SocketAddr,
    /// Time between two looks: a second at least.
    #[arg(long, default_value = "15s", value_parser = a_second)]
    pub period: Duration,
    /// Time over which peaks count, and for which a container must be calm before it is lowered: a second at least.
    #[arg(long, default_value = "24h", value_parser = a_second)]
    pub window: Duration,
    /// Time over which peaks count for requests of burstable pods; without it they go by the limit.
    #[arg(long, value_parser = a_second)]
    pub request_window: Option<Duration>,
    /// Percent of the peak that are added to it.
    #[arg(long, default_value_t = 15)]
    pub margin: u32,
    /// The least that is ever recommended.
    #[arg(long, default_value = "32Mi", value_parser = quantity::argument)]
    pub least: u64,
    /// Price up to which memory is spare: milliseconds to get a MiB back, or lost without it in ten seconds.
    #[arg(long, default_value_t = 2.0, value_parser = number(0.0..=f64::MAX, "a number of milliseconds, 0 or more"))]
    pub cost_bar: f64,
    /// What is changed of pods without the annotation weir.dev/resize. Where it is off, annotations change nothing either.
    #[arg(long, value_enum, default_value_t = Resize::Off)]
    pub resize: Resize,
    /// The most that `both` raises a limit to, as a multiple of what was there before the agent's first change.
    #[arg(long, default_value_t = 1.5, value_parser = number(1.0..=f64::MAX, "a factor, 1 or more"))]
    pub above: f64,
    /// Write recommendations into the VerticalPodAutoscalers whose recommenders name `weir`.
    #[arg(long)]
    pub recommend: bool,
    /// Switch same-page merging on for pods with the annotation weir.dev/merge. It stays on.
    #[arg(long)]
    pub merge: bool,
    /// The kernel's switches of same-page merging.
    #[arg(long, default_value = "/sys/kernel/mm/ksm")]
    pub ksm: PathBuf,
    /// Ask processes for their cheapest memory while less than this percentage of the machine's is available: up to 50.
    // The chart gives it without a percentage, and its values may give it again with one: the last one counts.
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "5", overrides_with = "relieve")]
    #[arg(value_parser = number(PERCENT, "a percentage above 0, up to 50"))]
    pub relieve: Option<f64>,
    /// Where the host's cgroups are mounted.
    #[arg(long, default_value = "/sys/fs/cgroup")]
    pub cgroup_root: PathBuf,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Look once, print what was found, and end. No API is asked.
    #[arg(long)]
    pub once: bool,
    /// With --once: as JSON.
    #[arg(long, requires = "once")]
    pub json: bool,
}

/// Relief goes on until twice the percentage is available. So half of the machine is the most that can be met.
const PERCENT: (Bound<f64>, Bound<f64>) = (Bound::Excluded(0.0), Bound::Included(50.0));

/// A time of a second at least. Without a period the agent would do nothing but look; without a window it would lower what it has
/// seen once.
fn a_second(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|why| why.to_string())?;
    if time < Duration::from_secs(1) { Err("it is too short: write 1s or more".into()) } else { Ok(time) }
}

/// Reads numbers of a range, which no NaN is in.
fn number(
    range: impl RangeBounds<f64> + Clone + Send + Sync + 'static,
    wanted: &'static str,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| format!("write {wanted}"))
}

/// What is changed of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Resize {
    /// Nothing. Of a pod alone: what the agent has lowered is given back.
    Off,
    /// Lowered, and raised again to what was there before.
    Down,
    /// Raised above that, too, as far as --above says.
    Both,
}

impl Resize {
    /// Of a pod with this annotation. A word that is none of these is off. What is off for the agent stays off: then the chart
    /// gives it neither the rights nor the mounts to change anything.
    pub fn of(self, annotation: Option<&str>) -> Self {
        match annotation {
            Some(word) if self != Self::Off => Self::from_str(word, false).unwrap_or(Self::Off),
            _ => self,
        }
    }

    /// Whether a pod with this annotation asks in vain.
    pub fn denies(self, annotation: Option<&str>) -> bool {
        self == Self::Off && annotation.is_some() && Self::Both.of(annotation) != Self::Off
    }
}

impl Options {
    /// What the policy goes by.
    pub fn rules(&self) -> Rules {
        let margin = f64::from(self.margin) / 100.0;
        Rules { window: self.window, requests: self.request_window, margin, least: self.least, above: self.above }
    }

    /// The price up to which memory is spare, nanoseconds a MiB.
    pub fn bar(&self) -> u64 {
        (self.cost_bar * 1e6) as u64
    }

    /// Whether processes are asked for something, and not only read.
    pub fn steers(&self) -> bool {
        !self.dry_run && (self.resize != Resize::Off || self.merge || self.relieve.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_s_word_counts_more_than_the_agent_s_but_off_is_off() {
        assert_eq!(Resize::Down.of(None), Resize::Down);
        assert_eq!(Resize::Down.of(Some("both")), Resize::Both);
        assert_eq!(Resize::Both.of(Some("off")), Resize::Off);
        assert_eq!(Resize::Both.of(Some("bogus")), Resize::Off);
        assert_eq!(Resize::Off.of(Some("both")), Resize::Off);
        let said = [Some("both"), Some("down"), Some("off"), Some("bogus"), None];
        assert_eq!(said.map(|word| Resize::Off.denies(word)), [true, true, false, false, false]);
        assert!(!Resize::Down.denies(Some("both")));
        let options = Options::parse_from(["weir-agent", "--relieve", "--least", "64Mi", "--period", "5s"]);
        assert_eq!((options.relieve, options.least, options.bar()), (Some(5.0), 64 << 20, 2_000_000));
        assert_eq!(Options::parse_from(["weir-agent", "--relieve", "--relieve=10"]).relieve, Some(10.0));
        assert!(options.steers() && !Options::parse_from(["weir-agent", "--resize", "down", "--dry-run"]).steers());
        assert!(Options::try_parse_from(["weir-agent", "--json"]).is_err());
    }

    #[test]
    fn values_that_make_no_sense_are_refused_in_words() {
        for (flag, good, wrong, why) in [
            ("--period", ["1s", "1h"], ["0s", "999ms"], "1s or more"),
            ("--window", ["1s", "24h"], ["0s", "1us"], "1s or more"),
            ("--request-window", ["1s", "10m"], ["0s", "0ms"], "1s or more"),
            ("--relieve", ["0.001", "50"], ["0", "200"], "up to 50"),
            ("--above", ["1", "3.5"], ["0.9", "inf"], "1 or more"),
            ("--cost-bar", ["0", "1e6"], ["-1", "NaN"], "0 or more"),
        ] {
            let read = |value: &str| Options::try_parse_from(["weir-agent".into(), format!("{flag}={value}")]);
            good.iter().for_each(|value| assert!(read(value).is_ok(), "{flag}={value}"));
            for value in wrong {
                let said = read(value).expect_err(value).to_string();
                assert!(said.contains(flag) && said.contains(why), "{said}");
            }
        }
        assert!(Options::try_parse_from(["weir-agent", "--period", "soon"]).is_err());
    }
}
