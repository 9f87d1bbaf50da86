//! What is counted of each export.

use crate::protocol::Command;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters that all workers add to.
#[derive(Default)]
pub struct Counters {
    connections: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    trims: AtomicU64,
    zeroes: AtomicU64,
    others: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
}

/// The counters at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Clients connected now.
    pub connections: u64,
    /// READ requests.
    pub reads: u64,
    /// WRITE requests.
    pub writes: u64,
    /// FLUSH requests.
    pub flushes: u64,
    /// TRIM requests.
    pub trims: u64,
    /// WRITE_ZEROES requests.
    pub zeroes: u64,
    /// CACHE and BLOCK_STATUS requests.
    pub others: u64,
    /// Bytes that READ asked for.
    pub read_bytes: u64,
    /// Bytes that WRITE brought.
    pub written_bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
}

impl Counters {
    /// A client has come.
    pub fn connect(&self) {
        self.connections.fetch_add(1, Relaxed);
    }
    /// A client has gone.
    pub fn disconnect(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }
    /// A request was answered with an error.
    pub fn error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }
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
    /// The counters now.
    pub fn read(&self) -> Figures {
        Figures {
            connections: self.connections.load(Relaxed),
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            trims: self.trims.load(Relaxed),
            zeroes: self.zeroes.load(Relaxed),
            others: self.others.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            errors: self.errors.load(Relaxed),
        }
    }
}
