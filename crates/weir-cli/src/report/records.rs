//! The records of the other commands, as they are read back: the fields that a report needs, and no others.

use crate::figures::memory::Memory;
use crate::figures::processes::Table;
use crate::figures::released::Released;
use crate::figures::run::Summary;
use crate::figures::times::Times;
use serde::Deserialize;

/// One record of a file.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Record {
    /// A line of `weir run --trace` and `weir trace`: a batch of memory that was released.
    Batch(Batch),
    /// A line of the same commands: events that the writer was too slow for.
    Lost {
        #[serde(rename = "pid")]
        _pid: u32,
        lost: u64,
    },
    /// The answer of `weir stat PID --json`.
    Process(Box<Process>),
    /// The answer of `weir stat --json`.
    Table(Table),
    /// The answer of `weir run --json`: the result of a run.
    Run(Box<Summary>),
}

/// The kinds of files, named by the commands that write them.
pub const RUN: &str = "weir run --json";
pub const TRACE: &str = "weir run --trace";
pub const STAT: &str = "weir stat --json";

impl Record {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Batch(_) | Self::Lost { .. } => TRACE,
            Self::Process(_) | Self::Table(_) => STAT,
            Self::Run(_) => RUN,
        }
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
    pub released_bytes: Released,
    pub touched_again_bytes: u64,
    pub times: Vec<TimesOf>,
    pub caches: Vec<Cache>,
}

#[derive(Deserialize)]
pub struct TimesOf {
    pub of: String,
    pub histogram: Times,
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
