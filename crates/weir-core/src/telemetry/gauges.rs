//! Amounts that rise and fall with what the program holds.
//!
//! They are counted here, and shown on the page of counters. They are not counted on that page itself, as a copy
//! replaces it while the program runs. That happens when it becomes one that others may map. Counts that another thread
//! makes on the page in between are lost. A total that lost a count is too small by one. A gauge that lost an increase
//! would be wrong for good, and below zero when all was given back.
//!
//! Under `weir run` other processes may write to the page. So what the hard limit goes by is read here, and not there.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::telemetry::stats::Stats;

/// An amount now.
#[derive(Debug)]
pub struct Gauge(AtomicU64);

impl Gauge {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The amount.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// More by `by`, or less by what wraps around, and shown.
    #[inline]
    pub fn add(&self, by: u64, shown: &AtomicU64) {
        shown.store(self.0.fetch_add(by, Relaxed).wrapping_add(by), Relaxed);
    }

    /// An amount that was measured, and shown.
    pub fn set(&self, to: u64, shown: &AtomicU64) {
        self.0.store(to, Relaxed);
        shown.store(to, Relaxed);
    }

    /// Less by `by`, and shown.
    #[inline]
    pub fn sub(&self, by: u64, shown: &AtomicU64) {
        shown.store(self.0.fetch_sub(by, Relaxed).wrapping_sub(by), Relaxed);
    }
}

macro_rules! gauges {
    ($($name:ident)*) => {
        /// The gauges of a heap, each shown by the counter of its name in [`Stats`].
        #[derive(Debug)]
        pub struct Gauges {
            $(
                #[doc = concat!("[`Stats::", stringify!($name), "`].")]
                pub $name: Gauge,
            )*
        }

        impl Gauges {
            /// All are 0.
            pub(crate) const fn new() -> Self {
                Self { $($name: Gauge::new()),* }
            }

            /// Shows all as they are now: of two threads that change a gauge at once, the one that shows it last may have
            /// counted first.
            pub(crate) fn show(&self, stats: &Stats) {
                $(stats.$name.store(self.$name.get(), Relaxed);)*
            }
        }
    };
}

gauges! { page_bytes mapped_bytes address_bytes zone_bytes shell_bytes metadata_bytes }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_lost_a_count_is_right_again_with_the_next() {
        let (gauges, stats) = (Gauges::new(), Stats::new());
        gauges.mapped_bytes.add(100, &stats.mapped_bytes);
        // A copy of the page from before that took its place.
        stats.mapped_bytes.store(0, Relaxed);
        gauges.mapped_bytes.sub(30, &stats.mapped_bytes);
        assert_eq!((gauges.mapped_bytes.get(), stats.mapped_bytes.load(Relaxed)), (70, 70));
        stats.mapped_bytes.store(0, Relaxed);
        gauges.metadata_bytes.set(9, &stats.metadata_bytes);
        stats.metadata_bytes.store(1 << 40, Relaxed);
        gauges.show(&stats);
        assert_eq!((stats.mapped_bytes.load(Relaxed), stats.page_bytes.load(Relaxed)), (70, 0));
        assert_eq!((stats.metadata_bytes.load(Relaxed), gauges.metadata_bytes.get()), (9, 9));
    }
}
