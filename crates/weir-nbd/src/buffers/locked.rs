//! Locked memory: a zone in which request data and cached blocks lie first, before other memory. No page of it is faulted in or
//! swapped out.
//!
//! Requests for runs of many pages and cached blocks of one page share it: where it is short, blocks in it are evicted.

use crate::base::Failure;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weir::zone::{BLOCK, Pages, Zone};

static ZONE: OnceLock<Zone> = OnceLock::new();
static EVICTED: AtomicU64 = AtomicU64::new(0);

/// The locked memory at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockedFigures {
    /// Bytes of it.
    pub bytes: usize,
    /// Bytes in use, by requests and by cached blocks.
    pub used_bytes: usize,
    /// Cached blocks in it that were evicted as memory was short.
    pub evicted_blocks: u64,
}

/// Locks `bytes`, rounded up to whole blocks of a zone, for good: once, before the first buffer is made.
pub fn lock_memory(bytes: u64) -> Result<(), Failure> {
    let size = usize::try_from(bytes).unwrap_or(usize::MAX).checked_next_multiple_of(BLOCK).unwrap_or(usize::MAX);
    let zone = Zone::locked(size).map_err(Failure::because("locked-memory"))?;
    ZONE.set(zone).map_err(|_| Failure::new("locked-memory: it is there already"))
}

/// The zone, if there is one.
pub fn zone() -> Option<&'static Zone> {
    ZONE.get()
}

/// Room for at least `bytes` bytes; `None`: there is no zone, or it has none to spare.
pub(super) fn take(bytes: usize) -> Option<Pages<'static>> {
    zone()?.alloc_first(bytes)
}

/// The figures, if memory is locked.
pub fn figures() -> Option<LockedFigures> {
    let usage = zone()?.usage();
    Some(LockedFigures { bytes: usage.bytes, used_bytes: usage.used_bytes, evicted_blocks: EVICTED.load(Relaxed) })
}

/// Counts a cached block in it that was evicted as memory was short.
pub fn note_evicted() {
    EVICTED.fetch_add(1, Relaxed);
}
