//! What one run came to.

use crate::harness::proc_files::SwapTraffic;

/// See the module.
pub struct Run {
    /// Requests of the program with the cache, and those that were hits.
    pub requests: f64,
    /// Hits among them.
    pub hits: f64,
    /// Blocks that the neighbour worked on.
    pub neighbour: f64,
    /// The least and the most that the cache held in the second half, bytes.
    pub cached: [f64; 2],
    /// Swap traffic of the machine.
    pub swap: SwapTraffic,
    /// How many of the two did not come to their end.
    pub killed: usize,
}
