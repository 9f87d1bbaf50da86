//! The process's counters and parameters.

use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::tunables::Tunables;

/// The counters; a page of its own, so that a shared mapping can be put over it.
pub static STATS: Stats = Stats::new();
/// The parameters.
pub static TUNABLES: Tunables = Tunables::new();
