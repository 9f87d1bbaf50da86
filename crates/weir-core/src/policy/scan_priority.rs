//! Scan priorities: how much of what is in use one scan looks at (Linux `mm/vmscan.c`).

use crate::base::units::Pages;

/// The priority that a run begins with: a 4096th of what there is.
pub const FIRST: u32 = 12;
/// The lowest priority of a run: half of what there is. 0, all of it, is for an allocation that would fail.
pub const LAST: u32 = 1;
/// The lowest priority of a run for a boost: such a run is gentle.
pub const LAST_BOOSTED: u32 = FIRST - 2;
/// Below it a run waits while write-back lags behind (Linux: `DEF_PRIORITY - 2`).
pub const FIRST_CONGESTED: u32 = FIRST - 2;
/// Pages that a scan takes at least (`SWAP_CLUSTER_MAX`).
pub const BATCH: Pages = Pages(32);
