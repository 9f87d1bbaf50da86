//! Figures of page pools.

use serde::{Deserialize, Serialize};
use weir::PagePool;

/// Figures of the connections' pools together. All but the first four are totals since the start of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFigures {
    /// Pools that there are now: connections that have had a request with data lately.
    pub count: usize,
    /// Pages kept for the next requests.
    pub idle_pages: usize,
    /// Pages that requests have now.
    pub in_flight_pages: usize,
    /// Pages that are registered with the workers' rings, for direct I/O. They are in no connection's pool.
    pub registered_pages: usize,
    /// Buffers asked for.
    pub gets: u64,
    /// Of these, such that took new pages.
    pub misses: u64,
    /// Pressure events for which a pool gave idle pages up, of each pool.
    pub squeezes: u64,
    /// Pages given up for these.
    pub squeezed_pages: u64,
    /// Misses that took pages which a squeeze had given up.
    pub misses_after_squeeze: u64,
}

impl PoolFigures {
    /// Adds a pool's.
    pub(super) fn add(&mut self, pool: &PagePool) {
        let stats = pool.stats();
        self.count += 1;
        self.idle_pages += stats.idle_pages;
        self.in_flight_pages += stats.in_flight_pages;
        self.gets += stats.gets;
        self.misses += stats.misses;
        self.squeezes += stats.squeezes;
        self.squeezed_pages += stats.squeezed_pages;
        self.misses_after_squeeze += stats.misses_after_squeeze;
    }

    /// The totals alone.
    pub(super) fn totals(self) -> Self {
        Self { count: 0, idle_pages: 0, in_flight_pages: 0, ..self }
    }
}
