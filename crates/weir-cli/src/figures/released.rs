//! Bytes released, by cause.

use crate::base::units::bytes;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;
use weir_core::telemetry::stats::Stats;

/// The causes, in the order of [`Released::all`] and of [`Cause`](weir_core::base::cause::Cause).
pub const CAUSES: [&str; 4] = ["idle", "pressure", "limit", "asked"];

/// Bytes released to the kernel since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    pub idle: u64,
    pub pressure: u64,
    pub limit: u64,
    pub asked: u64,
}

impl Released {
    /// By one process, or by several.
    pub fn by<'a>(pages: impl IntoIterator<Item = &'a Stats>) -> Self {
        let mut all = [0u64; CAUSES.len()];
        for page in pages {
            let each = all.iter_mut().zip(&page.given_back);
            each.for_each(|(sum, bytes)| *sum = sum.saturating_add(bytes.load(Relaxed)));
        }
        Self::from(all)
    }

    pub fn all(&self) -> [u64; CAUSES.len()] {
        [self.idle, self.pressure, self.limit, self.asked]
    }

    pub fn total(&self) -> u64 {
        self.all().into_iter().fold(0, u64::saturating_add)
    }

    /// Each cause with its bytes, such as `idle 1.0 MiB`, with a comma between two.
    pub fn by_cause(&self) -> String {
        let each = CAUSES.iter().zip(self.all()).map(|(cause, size)| format!("{cause} {}", bytes(size)));
        each.collect::<Vec<_>>().join(", ")
    }
}

impl From<[u64; CAUSES.len()]> for Released {
    fn from([idle, pressure, limit, asked]: [u64; CAUSES.len()]) -> Self {
        Self { idle, pressure, limit, asked }
    }
}
