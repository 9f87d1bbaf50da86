//! The table of all processes with Weir: what `weir stat` writes as JSON, and `weir report` reads back.

use super::memory::Memory;
use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Serialize, Deserialize)]
pub struct Table {
    /// When these figures were read, ns of the monotonic clock. None in what older versions wrote.
    pub at_ns: Option<u64>,
    /// Largest first.
    pub processes: Vec<Line>,
    #[serde(default)]
    pub unreadable: Vec<Unreadable>,
    /// Processes that this user may not look into.
    pub not_allowed: usize,
    /// Processes for which too many files are open.
    #[serde(default)]
    pub too_many_files: usize,
}

/// A process.
#[derive(Serialize, Deserialize)]
pub struct Line {
    pub pid: i32,
    pub command: String,
    #[serde(flatten)]
    pub memory: Memory,
    pub released_bytes: u64,
}

/// A process that could not be looked into.
#[derive(Serialize, Deserialize)]
pub struct Unreadable {
    pub pid: i32,
    pub why: String,
}
