//! The report of a server about itself.

use crate::buffers::PoolFigures;
use crate::buffers::locked::{self, LockedFigures};
use crate::cache::CacheFigures;
use crate::export::{Counters, Export};
use crate::session::Context;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// A server's figures at one time.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    pub version: String,
    pub pid: u32,
    pub uptime_seconds: u64,
    pub workers: usize,
    /// `io_uring` or `threads`.
    pub io: String,
    /// Clients connected now.
    pub connections: u64,
    /// Clients that have come.
    pub accepted: u64,
    /// Clients that were one too many.
    pub refused: u64,
    pub failed_handshakes: u64,
    /// Bytes of the heap in use.
    pub heap_live_bytes: usize,
    /// Bytes of the heap that are free and resident.
    pub heap_idle_bytes: usize,
    /// Bounds of the memory of requests, bytes: of all, of one client's, of one. 0: an older server's report, which has none.
    #[serde(default)]
    pub max_memory_bytes: u64,
    #[serde(default)]
    pub max_client_memory_bytes: u64,
    #[serde(default)]
    pub max_request_bytes: u64,
    /// The limit that the process should stay under, bytes; 0: no limit.
    #[serde(default)]
    pub limit_bytes: u64,
    /// The block cache, if there is one.
    pub cache: Option<CacheFigures>,
    /// The locked memory, if there is any.
    pub locked: Option<LockedFigures>,
    /// The page pools of the connections.
    pub pools: PoolFigures,
    pub exports: Vec<ExportReport>,
}

/// An export's figures.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExportReport {
    pub name: String,
    pub kind: String,
    pub source: String,
    pub size_bytes: u64,
    pub read_only: bool,
    #[serde(flatten)]
    pub counters: Arc<Counters>,
}

/// The parts that a report needs beside the context.
pub struct Reporter {
    pub since: Instant,
    pub workers: usize,
    pub io: &'static str,
}

impl Reporter {
    pub fn report(&self, context: &Context) -> Report {
        let (statistics, heap) = (&context.statistics, weir::heap::usage());
        Report {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_seconds: self.since.elapsed().as_secs(),
            workers: self.workers,
            io: self.io.into(),
            connections: statistics.connections.load(Relaxed),
            accepted: statistics.accepted.load(Relaxed),
            refused: statistics.refused.load(Relaxed),
            failed_handshakes: statistics.failed_handshakes.load(Relaxed),
            heap_live_bytes: heap.live_bytes,
            heap_idle_bytes: heap.idle_bytes,
            max_memory_bytes: (context.limits.worker_memory * self.workers) as u64,
            max_client_memory_bytes: context.limits.client_memory as u64,
            max_request_bytes: context.limits.request.into(),
            limit_bytes: weir::settings::get("limit").unwrap_or(0),
            cache: context.cache.as_ref().map(|cache| cache.figures()),
            locked: locked::figures(),
            pools: context.pools.figures(),
            exports: context.exports().iter().map(|export| of_export(export)).collect(),
        }
    }
}

fn of_export(export: &Export) -> ExportReport {
    ExportReport {
        name: export.definition.name.clone(),
        kind: export.volume.kind().into(),
        source: export.definition.source.to_string(),
        size_bytes: export.volume.size(),
        read_only: export.volume.is_read_only(),
        counters: export.counters.clone(),
    }
}
