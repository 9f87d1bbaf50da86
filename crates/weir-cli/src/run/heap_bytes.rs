//! Where the memory of Weir's heaps is, by the pages of counters, in the words of `weir.h`.

use crate::base::units::bytes;
use crate::processes::stats_file::StatsFile;
use serde::Serialize;
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::Stats;

/// Sums over processes, each as of the end of its last calm window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeapBytes {
    /// Blocks and objects that the programs hold, touched or not.
    pub live_bytes: u64,
    /// Free and resident, and can be released.
    pub idle_bytes: u64,
    /// Free and resident, in slabs that have objects in use.
    pub fragmented_bytes: u64,
    /// Weir's own, resident.
    pub metadata_bytes: u64,
}

impl HeapBytes {
    /// Those of the processes `alive`, by their numbers in their own namespaces.
    pub fn of(file: &StatsFile, alive: &HashSet<u32>) -> Self {
        let is_alive = |page: &&Stats| alive.contains(&page.pid.load(Relaxed));
        file.pages().filter(is_alive).fold(Self::default(), |sum, page| Self {
            live_bytes: sum.live_bytes.saturating_add(page.live_bytes.load(Relaxed)),
            idle_bytes: sum.idle_bytes.saturating_add(page.idle_bytes.load(Relaxed)),
            fragmented_bytes: sum.fragmented_bytes.saturating_add(page.fragmented_bytes.load(Relaxed)),
            metadata_bytes: sum.metadata_bytes.saturating_add(page.metadata_bytes.load(Relaxed)),
        })
    }
}

impl fmt::Display for HeapBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [live, idle, fragmented, metadata] =
            [self.live_bytes, self.idle_bytes, self.fragmented_bytes, self.metadata_bytes].map(bytes);
        write!(f, "live {live}, idle {idle}, fragmented {fragmented}, metadata {metadata}")
    }
}
