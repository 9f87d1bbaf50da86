//! Events that allocation tells reclaim: memory was freed, pages became resident, reported memory was taken again.
//! Allocation calls nothing else of reclaim; the heap looks at these words at the end of each slow path.

use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
};

use crate::base::time::{Nanos, Time};
use crate::base::units::{PAGE, Pages};
use crate::platform::{Clock, Workers};
use crate::policy::hold::Hold;
use crate::policy::refault::{Refault, span, stamp};
use crate::telemetry::stats;
use crate::telemetry::tunables::Tunables;

/// See the module.
pub struct Events {
    /// The balancer was woken and has not looked yet.
    pending: AtomicBool,
    /// Bytes freed while it was not.
    freed: AtomicU64,
    /// Pages that became resident and that peaks may not explain.
    fresh: AtomicUsize,
    /// Slow paths gone.
    slow_paths: AtomicU32,
    /// The time as of the last window's end or pressure event, ns: exact enough for ages, and read at no cost.
    clock: AtomicU64,
}

impl Events {
    /// Nothing happened yet.
    pub(crate) const fn new() -> Self {
        Self {
            pending: AtomicBool::new(false),
            freed: AtomicU64::new(0),
            fresh: AtomicUsize::new(0),
            slow_paths: AtomicU32::new(0),
            clock: AtomicU64::new(0),
        }
    }

    /// `bytes` more may be released. `report_threshold` of them wake the balancer, once until it has looked.
    #[inline]
    pub(crate) fn freed<P: Workers>(&self, platform: &P, bytes: usize) {
        if !self.pending.load(Relaxed) {
            // A threshold may be so high that the sum wraps around before it: then nothing is woken, as is wished.
            let freed = self.freed.fetch_add(bytes as u64, Relaxed).wrapping_add(bytes as u64);
            if freed >= platform.tunables().report_threshold.get() && !self.pending.swap(true, Relaxed) {
                self.freed.store(0, Relaxed);
                platform.wake_balancer();
            }
        }
    }

    /// The balancer looks now, or could not be woken: the next free may wake it.
    pub(crate) fn seen(&self) {
        self.pending.store(false, Release);
    }

    /// `pages` became resident.
    #[inline]
    pub(crate) fn fresh(&self, pages: Pages) {
        if !pages.is_zero() {
            self.fresh.fetch_add(pages.0, Relaxed);
        }
    }

    /// The pages that became resident since the last call.
    #[inline]
    pub(crate) fn take_fresh(&self) -> Pages {
        Pages(if self.fresh.load(Relaxed) == 0 { 0 } else { self.fresh.swap(0, Relaxed) })
    }

    /// Pages that were reported are taken again: counts them if that was soon. To be called under no lock.
    #[inline]
    pub(crate) fn taken_again<P: Workers + Clock>(&self, platform: &P, again: Refault) {
        if again.pages > 0 {
            count_again(platform, again);
        }
    }

    /// A slow path ends; true for one in `every`.
    #[inline]
    pub(crate) fn slow_path(&self, every: u32) -> bool {
        self.slow_paths.fetch_add(1, Relaxed).is_multiple_of(every)
    }

    /// The time as of the last [`Events::tick`], ns.
    #[inline]
    pub(crate) fn clock(&self) -> Time {
        Time(self.clock.load(Relaxed))
    }

    /// Reads the clock for the others.
    pub(crate) fn tick<P: Clock>(&self, platform: &P) -> Time {
        let now = platform.now();
        self.clock.store(now.0, Relaxed);
        now
    }
}

#[cold]
fn count_again<P: Workers + Clock>(platform: &P, again: Refault) {
    let (stats, tunables, now) = (platform.stats(), platform.tunables(), stamp(platform.now()));
    let bytes = u64::from(again.pages) * PAGE as u64;
    if again.is_soon(now, span(horizon(tunables))) {
        stats::add(&stats.refault_bytes, bytes);
    }
    let (idle, longest) = (tunables.idle_ms.ns(), tunables.hold_ms.ns());
    let hold = Hold::of(stats.patience.load(Relaxed) as u32, idle);
    if again.calm && again.is_soon(now, span(hold.spared_ns(idle, longest))) {
        stats::add(&stats.calm_refault_bytes, bytes);
    }
}

/// For how long a report is recent, ns.
pub(crate) fn horizon(tunables: &Tunables) -> Nanos {
    tunables.refault_ms.ns()
}
