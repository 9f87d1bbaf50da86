//! The process's counters and parameters.

use core::ops::Deref;
use weir_core::telemetry::stats::Stats;
use weir_core::telemetry::tunables::Tunables;

/// Counters that begin at a page of the kernel's, so that a shared mapping can be put over them. On arm64 it may have 16 KiB.
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(4096)))]
#[cfg_attr(target_arch = "aarch64", repr(C, align(16384)))]
pub struct Replaceable(Stats);

impl Deref for Replaceable {
    type Target = Stats;

    fn deref(&self) -> &Stats {
        &self.0
    }
}

/// The process's counters.
pub static STATS: Replaceable = Replaceable(Stats::new());
/// The parameters.
pub static TUNABLES: Tunables = Tunables::new();
