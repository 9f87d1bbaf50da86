//! The clock by which processes tell times.

use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock, ns.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
