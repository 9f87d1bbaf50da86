//! What the other commands write, as it is read back: the fields that a report needs, and no others.

use crate::processes::reclaim_table::ReclaimTotals;
use serde::Deserialize;
use std::fmt;

/// One record of a file.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Record {
    /// Of `weir run --trace` and `weir trace`: a batch of memory that was released.
    Batch(Batch),
    /// Of the same: events that the writer was too slow for.
    Lost {
        #[serde(rename = "pid")]
        _pid: u32,
        lost: u64,
    },
    /// Of `weir stat PID --json`.
    Process(Box<Process>),
    /// Of `weir stat --json`.
    Table(Table),
    /// Of `weir run --json`: the result of a run.
    Run(Box<Run>),
}

/// What a file consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Run,
    Trace,
    Stat,
}

impl Record {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Batch(_) | Self::Lost { .. } => Kind::Trace,
            Self::Process(_) | Self::Table(_) => Kind::Stat,
            Self::Run(_) => Kind::Run,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run => "weir run --json",
            Self::Trace => "weir run --trace",
            Self::Stat => "weir stat --json",
        })
    }
}

/// Why memory was released.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    Idle,
    Pressure,
    Limit,
    Asked,
    /// One that this version does not have.
    #[serde(other)]
    Unknown,
}

/// The names of the causes, in the order of [`Bytes::all`].
pub const CAUSES: [&str; 4] = ["idle", "pressure", "limit", "asked"];

#[derive(Deserialize)]
pub struct Batch {
    pub at_ns: u64,
    pub cause: Cause,
    pub kind: String,
    pub bytes: u64,
    pub ns: u64,
    /// `ok`, or why the kernel refused a part.
    pub result: String,
}

/// Bytes released, by cause.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Bytes {
    pub idle: u64,
    pub pressure: u64,
    pub limit: u64,
    pub asked: u64,
}

impl Bytes {
    pub fn all(&self) -> [u64; 4] {
        [self.idle, self.pressure, self.limit, self.asked]
    }
}

/// What a resident set consists of, bytes. Parts that are unknown are 0.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
pub struct Memory {
    pub resident_bytes: u64,
    #[serde(deserialize_with = "or_none")]
    pub live_bytes: u64,
    #[serde(deserialize_with = "or_none")]
    pub idle_bytes: u64,
    #[serde(deserialize_with = "or_none")]
    pub fragmented_bytes: u64,
    #[serde(deserialize_with = "or_none")]
    pub metadata_bytes: u64,
    #[serde(deserialize_with = "or_none")]
    pub not_weirs_bytes: u64,
}

fn or_none<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl Memory {
    /// The parts, in the order in which they are stacked.
    pub fn parts(&self) -> [u64; 5] {
        [self.not_weirs_bytes, self.metadata_bytes, self.live_bytes, self.fragmented_bytes, self.idle_bytes]
    }

    pub fn plus(&self, other: &Self) -> Self {
        Self {
            resident_bytes: self.resident_bytes.saturating_add(other.resident_bytes),
            live_bytes: self.live_bytes.saturating_add(other.live_bytes),
            idle_bytes: self.idle_bytes.saturating_add(other.idle_bytes),
            fragmented_bytes: self.fragmented_bytes.saturating_add(other.fragmented_bytes),
            metadata_bytes: self.metadata_bytes.saturating_add(other.metadata_bytes),
            not_weirs_bytes: self.not_weirs_bytes.saturating_add(other.not_weirs_bytes),
        }
    }
}

/// The names of [`Memory::parts`].
pub const PARTS: [&str; 5] = ["not Weir's", "metadata", "live", "fragmented", "idle"];

/// The level of pressure.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(from = "String")]
pub enum Pressure {
    #[default]
    None,
    Some,
    Severe,
}

impl From<String> for Pressure {
    fn from(level: String) -> Self {
        match level.as_str() {
            "some" => Self::Some,
            "severe" => Self::Severe,
            _ => Self::None,
        }
    }
}

#[derive(Deserialize)]
pub struct Process {
    pub pid: i32,
    pub command: String,
    /// Files of older versions have none.
    pub at_ns: Option<u64>,
    #[serde(flatten)]
    pub memory: Memory,
    pub pressure: Pressure,
    pub released_bytes: Bytes,
    pub touched_again_bytes: u64,
    pub times: Vec<Times>,
    pub caches: Vec<Cache>,
}

#[derive(Deserialize)]
pub struct Times {
    pub of: String,
    pub histogram: Vec<u64>,
}

#[derive(Deserialize)]
pub struct Cache {
    pub name: String,
    pub size: u64,
    pub used: u64,
    pub slab_bytes: u64,
    pub trimmed_bytes: u64,
    pub drained_bytes: u64,
}

#[derive(Deserialize)]
pub struct Table {
    pub at_ns: Option<u64>,
    pub processes: Vec<Line>,
    #[serde(rename = "not_allowed")]
    _not_allowed: u64,
}

#[derive(Deserialize)]
pub struct Line {
    pub pid: i32,
    pub command: String,
    #[serde(flatten)]
    pub memory: Memory,
    pub released_bytes: u64,
}

#[derive(Deserialize)]
pub struct Run {
    pub verdict: String,
    pub program: String,
    pub exit_status: Option<i32>,
    pub signal: Option<i32>,
    pub elapsed_seconds: f64,
    pub peak_resident_bytes: Option<u64>,
    pub last_resident_bytes: Option<u64>,
    pub processes: u64,
    pub given_back_bytes: Bytes,
    pub pressure_events: u64,
    pub pressure_latency_p50_ns: Option<u64>,
    pub pressure_latency_max_ns: Option<u64>,
    pub reports: u64,
    pub report_failures: u64,
    pub refault_bytes: u64,
    pub huge_pages_given_whole: u64,
    pub huge_pages_split: u64,
    pub alloc_hit_rate: Option<f64>,
    pub free_hit_rate: Option<f64>,
    pub reclaim: ReclaimTotals,
}
