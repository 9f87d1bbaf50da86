//! Events that allocation tells reclaim: memory was freed, pages became resident, reported memory was taken again.
//! Allocation calls nothing else of reclaim; the heap looks at these words at the end of each slow path.

use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::base::time::{Nanos, Time};
use crate::base::units::{Bytes, PAGE, Pages};
use crate::platform::{Clock, Workers};
use crate::policy::hold::Hold;
use crate::policy::refault::{Refault, span, stamp};
use crate::policy::watermarks::Zone;
use crate::telemetry::stats;
use crate::telemetry::tunables::Tunables;

/// Pages that become resident between two looks at what is left, where much is: as much as is worth a release elsewhere (2 MiB).
const STEP: Pages = Pages::BLOCK;
/// The least of it (64 KiB): a look costs a microsecond or two.
const LEAST_STEP: Pages = Pages(16);
/// Near a limit it is one such part of what must stay free below it.
const STEPS: usize = 4;
/// Free pages above high from which memory may come in huge pages (16 MiB): a fault takes 2 MiB of which little is counted yet.
const ROOM_FOR_HUGE: Pages = Pages(8 * Pages::BLOCK.0);

/// See the module.
pub struct Events {
    /// The balancer was woken and has not looked yet.
    pending: AtomicBool,
    /// Bytes freed while it was not.
    freed: AtomicU64,
    /// Pages that became resident and that peaks may not explain.
    fresh: AtomicUsize,
    /// Those, and pages that were reported and became resident again.
    resident: AtomicUsize,
    /// So many of the latter are told at a time: see [`Events::told_by`].
    step: AtomicUsize,
    /// Much more may become resident below the tightest limit.
    has_room: AtomicBool,
    /// Slow paths gone.
    slow_paths: AtomicU32,
    /// The time as of the last window's end or pressure event, ns: exact enough for ages, and read at no cost.
    clock: AtomicU64,
    /// The first such time.
    first_tick: AtomicU64,
}

impl Events {
    /// Nothing happened yet.
    pub(crate) const fn new() -> Self {
        Self {
            pending: AtomicBool::new(false),
            freed: AtomicU64::new(0),
            fresh: AtomicUsize::new(0),
            resident: AtomicUsize::new(0),
            step: AtomicUsize::new(STEP.0),
            has_room: AtomicBool::new(true),
            slow_paths: AtomicU32::new(0),
            clock: AtomicU64::new(0),
            first_tick: AtomicU64::new(0),
        }
    }

    /// `bytes` more may be released. `report_threshold` of them wake the balancer, once until it has looked.
    #[inline]
    pub(crate) fn freed<P: Workers>(&self, platform: &P, bytes: Bytes) {
        if !self.pending.load(Relaxed) {
            // A threshold may be so high that the sum wraps around before it: then nothing is woken, as is wished.
            let freed = self.freed.fetch_add(bytes.0 as u64, Relaxed).wrapping_add(bytes.0 as u64);
            // The swap comes after what was done before `seen`. A balancer that has left is then started, not woken in vain.
            if freed >= platform.tunables().report_threshold.get() && !self.pending.swap(true, Acquire) {
                self.freed.store(0, Relaxed);
                platform.wake_balancer();
            }
        }
    }

    /// The balancer looks now, or could not be woken: the next free may wake it.
    pub(crate) fn seen(&self) {
        self.pending.store(false, Release);
    }

    /// The pages `fresh` became resident, and those that were reported and are taken again. To be called under no lock.
    #[inline]
    pub(crate) fn resident<P: Workers + Clock>(&self, platform: &P, fresh: Pages, again: Refault) {
        self.taken_again(platform, again);
        let pages = fresh.0 + again.pages as usize;
        if pages > 0 {
            self.fresh.fetch_add(fresh.0, Relaxed);
            self.resident.fetch_add(pages, Relaxed);
        }
    }

    /// The next slow path tells that the heap has grown, whether it has or not.
    pub(crate) fn look_at_growth(&self) {
        self.resident.fetch_max(self.step.load(Relaxed), Relaxed);
    }

    /// The pages that became resident since the last call, once they are enough to be told: those that peaks may not explain,
    /// 2 MiB at least as whole pageblocks go for them, and all.
    #[inline]
    pub(crate) fn take_resident(&self) -> Option<(Pages, Pages)> {
        if self.resident.load(Relaxed) < self.step.load(Relaxed) {
            return None;
        }
        let fresh = if self.fresh.load(Relaxed) < STEP.0 { 0 } else { self.fresh.swap(0, Relaxed) };
        Some((Pages(fresh), Pages(self.resident.swap(0, Relaxed))))
    }

    /// NORMAL is as `normal` says, by a reading or by the estimate since. What has to stay free below a small limit is less than
    /// 2 MiB, and would be passed between two looks: they come by a part of it.
    pub(crate) fn told_by(&self, normal: &Zone) {
        let has_limit = !normal.managed.is_zero();
        let step = if has_limit { (normal.marks.min / STEPS).clamp(LEAST_STEP, STEP) } else { STEP };
        self.step.store(step.0, Relaxed);
        self.has_room.store(!has_limit || normal.free > normal.marks.high + ROOM_FOR_HUGE, Relaxed);
    }

    /// Whether so much may become resident that it may come in huge pages.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room.load(Relaxed)
    }

    /// Pages that were reported are taken again, of what is counted elsewhere: tells the refault meter if that was soon. To be
    /// called under no lock.
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
        if self.clock.swap(now.0, Relaxed) == 0 {
            self.first_tick.store(now.0, Relaxed);
        }
        now
    }

    /// The time since what [`Events::clock`] said then. What was before the first tick counts as of that.
    pub(crate) fn age(&self, then: Time) -> Nanos {
        self.clock().since(then.max(Time(self.first_tick.load(Relaxed))))
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
