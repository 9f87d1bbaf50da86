//! State that all sessions of all workers share.

use crate::buffers::Pools;
use crate::cache::BlockCache;
use crate::export::Exports;
use rustls::ServerConfig;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Bounds on what clients may do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest data of one request, bytes.
    pub request: u32,
    /// Memory for one client's requests, bytes.
    pub client_memory: usize,
    /// Memory for the requests of all clients of one worker, bytes.
    pub worker_memory: usize,
    /// Time for the whole handshake.
    pub handshake: Duration,
    /// Time for a client to go on, inside a message or with replies waiting for it.
    pub patience: Duration,
}

/// TLS, if the server has a certificate.
#[derive(Clone, Default)]
pub struct TlsMode {
    /// `None`: no TLS.
    pub config: Option<Arc<ServerConfig>>,
    /// Clients without it are refused.
    pub required: bool,
}

/// Counters of the server.
#[derive(Default)]
pub struct Statistics {
    /// Clients connected now.
    pub connections: AtomicU64,
    /// Clients that have come.
    pub accepted: AtomicU64,
    /// Clients that were one too many.
    pub refused: AtomicU64,
    /// Clients that never got as far as an export, and did not leave in order.
    pub failed_handshakes: AtomicU64,
}

/// State that all sessions share.
pub struct Context {
    /// The part that a reload replaces.
    offer: RwLock<(Arc<Exports>, TlsMode)>,
    /// The block cache, if the server has one.
    pub cache: Option<Arc<BlockCache>>,
    /// The page pools of the connections.
    pub pools: Pools,
    /// Bounds.
    pub limits: Limits,
    /// Counters.
    pub statistics: Statistics,
    stopping: AtomicBool,
}

impl Context {
    /// A server's beginning.
    pub fn new(
        exports: Exports,
        tls: TlsMode,
        limits: Limits,
        cache: Option<Arc<BlockCache>>,
        pools: Pools,
    ) -> Arc<Self> {
        Arc::new(Self {
            offer: RwLock::new((Arc::new(exports), tls)),
            cache,
            pools,
            limits,
            statistics: Statistics::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// The exports of now.
    pub fn exports(&self) -> Arc<Exports> {
        self.offer.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// TLS as it is now.
    pub fn tls(&self) -> TlsMode {
        self.offer.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// From now on new clients find these. Sessions keep what they have. A server that is stopping takes none: it flushes
    /// those that it has.
    pub fn replace(&self, exports: Exports, tls: TlsMode) {
        let mut offer = self.offer.write().unwrap_or_else(PoisonError::into_inner);
        if !self.is_stopping() {
            *offer = (Arc::new(exports), tls);
        }
    }

    /// The server is stopping.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// From now on it is.
    pub fn stop(&self) {
        self.stopping.store(true, Relaxed);
    }
}

/// A client that is connected, for as long as this lives.
pub struct Guest(Arc<Context>);

impl Guest {
    /// One more client, unless there are `most`.
    pub fn admit(context: &Arc<Context>, most: usize) -> Option<Self> {
        let statistics = &context.statistics;
        // One acceptor task a listener, all on one thread: no other adds meanwhile.
        if statistics.connections.load(Relaxed) >= most as u64 {
            statistics.refused.fetch_add(1, Relaxed);
            return None;
        }
        statistics.connections.fetch_add(1, Relaxed);
        statistics.accepted.fetch_add(1, Relaxed);
        Some(Self(context.clone()))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.statistics.connections.fetch_sub(1, Relaxed);
    }
}
