//! The command line.

use crate::policy::quantity;
use clap::{Parser, ValueEnum};
use std::net::SocketAddr;
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
    /// Time between two looks.
    #[arg(long, default_value = "15s", value_parser = humantime::parse_duration)]
    pub period: Duration,
    /// Time over which peaks count, and for which a container must be calm before it is lowered.
    #[arg(long, default_value = "24h", value_parser = humantime::parse_duration)]
    pub window: Duration,
    /// Time over which peaks count for requests of burstable pods; without it they go by the limit.
    #[arg(long, value_parser = humantime::parse_duration)]
    pub request_window: Option<Duration>,
    /// Percent of the peak that are added to it.
    #[arg(long, default_value_t = 15)]
    pub margin: u32,
    /// The least that is ever recommended.
    #[arg(long, default_value = "32Mi", value_parser = quantity::argument)]
    pub least: u64,
    /// Price up to which memory is spare: milliseconds to get a MiB back, or lost without it in ten seconds.
    #[arg(long, default_value_t = 2.0)]
    pub cost_bar: f64,
    /// Whether limits and requests of pods without the annotation weir.dev/resize are changed.
    #[arg(long, value_enum, default_value_t = Resize::Off)]
    pub resize: Resize,
    /// The most that `both` raises a limit to, as a multiple of what was there before the agent's first change.
    #[arg(long, default_value_t = 1.5)]
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
    /// Ask processes for their cheapest memory while less than this percentage of the machine's is available.
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, default_missing_value = "5")]
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

/// What is changed of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Resize {
    /// Nothing.
    Off,
    /// Lowered, and raised again to what was there before.
    Down,
    /// Raised above that, too, as far as --above says.
    Both,
}

impl Resize {
    /// Of a pod with this annotation; one that is no such word changes nothing.
    pub fn of(self, annotation: Option<&str>) -> Self {
        annotation.map_or(self, |word| Self::from_str(word, false).unwrap_or(Self::Off))
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
    fn a_pod_s_word_counts_more_than_the_agent_s() {
        assert_eq!(Resize::Down.of(None), Resize::Down);
        assert_eq!(Resize::Off.of(Some("both")), Resize::Both);
        assert_eq!(Resize::Both.of(Some("off")), Resize::Off);
        assert_eq!(Resize::Both.of(Some("bogus")), Resize::Off);
        let options = Options::parse_from(["weir-agent", "--relieve", "--least", "64Mi", "--period", "5s"]);
        assert_eq!((options.relieve, options.least, options.bar()), (Some(5.0), 64 << 20, 2_000_000));
        assert!(options.steers() && !Options::parse_from(["weir-agent", "--resize", "down", "--dry-run"]).steers());
        assert!(Options::try_parse_from(["weir-agent", "--json"]).is_err());
    }
}
