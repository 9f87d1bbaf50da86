//! When metadata is measured again for the page of counters.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Metadata is measured again only after so many times as long as it took: at most 0.1 % of a CPU.
const PAUSE: u64 = 1000;

/// The end of the pause after the last measurement, ns.
pub(super) struct MeasurePause(AtomicU64);

impl MeasurePause {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether it is over.
    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.0.load(Relaxed)
    }

    /// Begins anew after a measurement from `begin` to `end`.
    pub(super) fn restart(&self, begin: u64, end: u64) {
        self.0.store(end + end.saturating_sub(begin) * PAUSE, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_takes_a_thousandth_of_the_time() {
        let pause = MeasurePause::new();
        assert!(pause.is_over(0));
        pause.restart(1_000, 1_500);
        assert!(!pause.is_over(501_499) && pause.is_over(501_500));
    }
}
