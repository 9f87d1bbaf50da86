//! When metadata is measured again for the page of counters.

use crate::base::time::{Nanos, Time};

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Metadata is measured again only after so many times as long as it took: at most 0.1 % of a CPU.
const PAUSE: u64 = 1000;
/// A pause at most: the process may have been stopped during a measurement.
const LONGEST: Nanos = Nanos::of_ms(60_000);

/// The end of the pause after the last measurement, ns.
pub(in crate::heap) struct MeasurePause(AtomicU64);

impl MeasurePause {
    pub(in crate::heap) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether it is over.
    pub(in crate::heap) fn is_over(&self, now: Time) -> bool {
        now.0 >= self.0.load(Relaxed)
    }

    /// Begins anew after a measurement from `begin` to `end`.
    pub(in crate::heap) fn restart(&self, begin: Time, end: Time) {
        self.0.store((end + (end.since(begin) * PAUSE).min(LONGEST)).0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_takes_a_thousandth_of_the_time() {
        let pause = MeasurePause::new();
        assert!(pause.is_over(Time(0)));
        pause.restart(Time(1_000), Time(1_500));
        assert!(!pause.is_over(Time(501_499)) && pause.is_over(Time(501_500)));
        // The process was stopped for an hour meanwhile.
        let end = Time::ZERO + Nanos::of_ms(3_600_000);
        pause.restart(Time::ZERO, end);
        assert!(!pause.is_over(end + Nanos::of_ms(59_999)) && pause.is_over(end + Nanos::of_ms(60_000)));
    }
}
