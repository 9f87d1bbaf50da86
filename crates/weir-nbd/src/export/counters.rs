//! The counters of each export.

use crate::protocol::Command;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters that all workers add to.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Clients connected now.
    pub connections: AtomicU64,
    /// READ requests.
    pub reads: AtomicU64,
    /// WRITE requests.
    pub writes: AtomicU64,
    /// FLUSH requests.
    pub flushes: AtomicU64,
    /// TRIM requests.
    pub trims: AtomicU64,
    /// WRITE_ZEROES requests.
    pub zeroes: AtomicU64,
    /// CACHE and BLOCK_STATUS requests.
    pub others: AtomicU64,
    /// Bytes that READ asked for.
    pub read_bytes: AtomicU64,
    /// Bytes that WRITE brought.
    pub written_bytes: AtomicU64,
    /// Requests answered with an error.
    pub errors: AtomicU64,
}

impl Counters {
    /// A valid request has come.
    pub fn request(&self, command: &Command) {
        let counter = match command {
            Command::Read { length, .. } => {
                self.read_bytes.fetch_add((*length).into(), Relaxed);
                &self.reads
            }
            Command::Write { length, .. } => {
                self.written_bytes.fetch_add((*length).into(), Relaxed);
                &self.writes
            }
            Command::Flush => &self.flushes,
            Command::Trim { .. } => &self.trims,
            Command::WriteZeroes { .. } => &self.zeroes,
            Command::Cache { .. } | Command::BlockStatus { .. } => &self.others,
            Command::Disconnect => return,
        };
        counter.fetch_add(1, Relaxed);
    }
}
