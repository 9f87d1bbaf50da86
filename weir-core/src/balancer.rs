//! The balancer: who gives way, in which order, how far.
//!
//! Calm: once a window, caches are trimmed to their working sets, and what lay free above the peak of the last window
//! is reported, whole pageblocks first, then runs and slab pages that no huge page backs; huge pages that have been in
//! little use for long are split ([`crate::sparse`]). Pressure: the same at once, with no cushion left. What calm windows
//! gave back too early makes them longer ([`crate::refault`]). Severe pressure, the last resort: every CPU's buckets are
//! drained first, depots are emptied, and huge pages are split for what is free inside them. That costs a program its
//! caches, so it happens once in `severe_interval_ms` at most; a severe event before that is answered as any other.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::buddy::Backing;
use crate::class_set::ClassSet;
use crate::heap::{Heap, MAX_NODES, Space};
use crate::lock::{Guard, Lock};
use crate::object_cache::{Cache, Domain};
use crate::page::{PAGE, PAGEBLOCK_PAGES};
use crate::platform::Platform;
use crate::pressure::Level;
use crate::refault::Patience;
use crate::report::{BATCH, Want};
use crate::slab::Pass;
use crate::sparse::Looks;
use crate::stats::{self, Cause};

/// Calm windows without any progress after which the balancer sleeps until something is freed again.
const IDLE_WINDOWS: u32 = 3;
/// Slow-path calls between two looks at the clock where there is no background thread.
const CALLS_PER_LOOK: u32 = 256;
/// Free pages too few to be worth a report in calm times: one call costs about as much as 16 pages' refaults.
const WORTH_PAGES: usize = 16;

/// Pageblocks looked at for whether the kernel filled them up: in a calm window (khugepaged itself goes through 8 in 10 s
/// by default), and under pressure (about 2 us each).
const COLLAPSED_CALM: usize = 16;
/// See above.
const COLLAPSED_PRESSURE: usize = 1024;

/// Bucket shells (528 bytes each) that pressure leaves for depots to go on with: at the severe level no memory is taken for
/// others. They are for 8,192 objects, a ninth of what all depots of malloc's classes hold at most.
const SHELLS_UNDER_PRESSURE: usize = 128;

/// What the balancer remembers between its runs.
pub struct Balancer {
    /// One batch in flight at a time for each node, and none across a fork. What is of all nodes or none (drains, zones
    /// of the program's own) goes under the first.
    in_flight: [Lock<(), 0>; MAX_NODES],
    /// Class at which the next round begins, so that nobody is always first.
    start: AtomicU32,
    /// Activity seen at the last window's end, to tell a quiet process.
    seen: AtomicU64,
    quiet_windows: AtomicU32,
    next_window: AtomicU64,
    last_drain: AtomicU64,
    /// The time as of the last window's end or event: exact enough for ages, and read at no cost.
    clock: AtomicU64,
    /// No memory for bucket shells before this time.
    shells_from: AtomicU64,
    /// What the refault meter makes of calm windows.
    patience: Lock<Patience, 4>,
    /// Calm reports and their refaults that it has taken in, bytes.
    taken_in: [AtomicU64; 2],
    /// Doublings of the calm window.
    level: AtomicU32,
    /// For huge pages in little use.
    pub(crate) looks: Looks,
}

impl Balancer {
    /// At rest.
    #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
    pub const fn new() -> Self {
        Self {
            in_flight: [const { Lock::new(()) }; MAX_NODES],
            start: AtomicU32::new(0),
            seen: AtomicU64::new(0),
            quiet_windows: AtomicU32::new(0),
            next_window: AtomicU64::new(0),
            last_drain: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            shells_from: AtomicU64::new(0),
            patience: Lock::new(Patience::new()),
            taken_in: [const { AtomicU64::new(0) }; 2],
            level: AtomicU32::new(0),
            looks: Looks::new(),
        }
    }

    /// The time as of the last window's end or event, ns.
    pub(crate) fn clock(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    /// The cache of `set` at which the next round begins: each is the first in its turn.
    pub(crate) fn next_start(&self, set: ClassSet) -> usize {
        let turn = self.start.fetch_add(1, Relaxed) as usize;
        set.from(0).nth(turn % set.len().max(1)).unwrap_or(0)
    }

    /// Held while a batch of `node` is isolated.
    pub(crate) fn in_flight(&self, node: usize) -> &Lock<(), 0> {
        &self.in_flight[node]
    }

    /// Holds batches of `node` off, after the one in flight.
    pub(crate) fn batch<'a, P: Platform>(&'a self, platform: &'a P, node: usize) -> Guard<'a, (), P, 0> {
        self.in_flight[node].lock(platform)
    }

    /// Returns once every batch is over that was in flight when this was called.
    pub(crate) fn pass_batches<P: Platform>(&self, platform: &P) {
        self.in_flight.iter().for_each(|lock| drop(lock.lock(platform)));
    }

    /// Waits for the batches in flight and holds further ones off: for `fork`.
    pub(crate) fn freeze<P: Platform>(&self, platform: &P) {
        self.in_flight.iter().for_each(|lock| lock.acquire(platform));
    }

    /// The same of the estimates, whose lock is of a higher rank.
    pub(crate) fn freeze_estimates<P: Platform>(&self, platform: &P) {
        self.patience.acquire(platform);
    }

    /// # Safety
    /// The caller froze them.
    pub(crate) unsafe fn thaw_estimates<P: Platform>(&self, platform: &P) {
        // SAFETY: as the caller promises.
        unsafe { self.patience.release(platform) }
    }

    /// # Safety
    /// The caller froze it.
    pub(crate) unsafe fn thaw<P: Platform>(&self, platform: &P) {
        // SAFETY: as the caller promises.
        unsafe { self.in_flight.iter().for_each(|lock| lock.release(platform)) }
    }
}

impl<P: Platform> Heap<P> {
    pub(crate) fn nodes(&self) -> usize {
        self.platform.nodes().clamp(1, MAX_NODES)
    }

    /// Notes that there are `bytes` more to give back; enough of them are worth waking somebody for.
    #[inline]
    pub(crate) fn note_idle(&self, bytes: usize) {
        if !self.pending.load(Relaxed) {
            let freed = self.freed.fetch_add(bytes as u64, Relaxed) + bytes as u64;
            if freed >= self.platform.tunables().report_threshold.get() && !self.pending.swap(true, Relaxed) {
                self.freed.store(0, Relaxed);
                self.platform.notify();
            }
        }
    }

    /// Lets the next free notify again, where a notice led to nothing.
    pub fn forget_notice(&self) {
        self.pending.store(false, Release);
    }

    /// Without a background thread, slow paths run the balancer's window when it is due.
    #[inline]
    pub(crate) fn housekeeping(&self) {
        if self.platform.tended() {
            if self.balancer.looks.wakes() && self.slow_calls.fetch_add(1, Relaxed).is_multiple_of(CALLS_PER_LOOK) {
                self.wake_for_looks();
            }
        } else if self.slow_calls.fetch_add(1, Relaxed).is_multiple_of(CALLS_PER_LOOK) {
            let now = self.platform.now();
            let due = self.balancer.next_window.load(Relaxed);
            let next = now + self.calm_window();
            if now >= due && self.balancer.next_window.compare_exchange(due, next, Acquire, Relaxed).is_ok() {
                self.balance_calm();
                let (level, cause) = self.platform.pressure();
                if level > Level::None {
                    stats::add(&self.platform.stats().pressure_events, 1);
                    self.balance_pressure(level, cause);
                    self.platform.stats().note_latency(self.platform.now() - now);
                }
            }
        }
    }

    /// Reads the clock, for all who are content with the last window's.
    fn tick(&self) -> u64 {
        let now = self.platform.now();
        self.balancer.clock.store(now, Relaxed);
        now
    }

    /// Whether memory was so short a moment ago that buckets may not grow in number.
    pub(crate) fn shells_stopped(&self) -> bool {
        let from = self.balancer.shells_from.load(Relaxed);
        from > 0 && self.platform.now() < from
    }

    /// Ends a calm window. Returns whether another is wanted soon: `false` once nothing moves any more.
    pub fn balance_calm(&self) -> bool {
        self.pending.store(false, Release);
        let now = self.tick();
        if self.platform.tunables().report.get() == 0 {
            return false;
        }
        let want = Want { cause: Cause::Idle, split: Backing::Small };
        self.learn();
        let quiet = self.is_quiet();
        let mut moved = 0;
        if quiet && self.balancer.quiet_windows.load(Relaxed) == 1 {
            moved += self.drain_cpus();
        }
        moved += self.drain_idle(now);
        moved += self.trim_calmly(now);
        let mut keep = [0; 2 * MAX_NODES];
        let nodes = self.nodes();
        for (i, space) in [&self.normal, &self.low].into_iter().enumerate() {
            for node in 0..nodes {
                let mut zone = space.zones[node].lock(&self.platform);
                let used = zone.used;
                keep[i * nodes + node] = zone.peak.roll(used) - used + WORTH_PAGES;
            }
        }
        let keep_mapped = self.mapped.lock(&self.platform).roll();
        moved += self.unmap_while(Cause::Idle, |blocks| blocks.drop_above(keep_mapped));
        // What the last window reported and nobody took since: then what describes it is not needed soon either.
        moved += self.release_descriptions() + self.release_stale_shells();
        moved += self.report_whole(want, |i| keep[i]);
        moved += self.report_runs(want, |i| keep[i]);
        moved += self.report_slabs(want, Pass::Changed);
        moved += self.report_collapsed(want, COLLAPSED_CALM);
        moved += self.each_user_zone(|site| {
            let mut zone = site.zone.lock(&self.platform);
            let used = zone.used;
            let keep = zone.peak.roll(used) - used + WORTH_PAGES;
            drop(zone);
            site.report_whole(want, keep) + site.report_runs(want, keep)
        });
        if moved > 0 || !quiet {
            self.look_again();
        }
        moved += self.report_sparse(want, quiet, |i| keep[i] - WORTH_PAGES);
        if quiet {
            // Nothing will be wanted soon, and the next window may be long.
            moved += self.release_descriptions();
        }
        self.publish();
        moved > 0 || !quiet || self.has_looks_left() || self.balancer.quiet_windows.load(Relaxed) < IDLE_WINDOWS
    }

    /// For a heap that has come to rest and whose memory is limited: what calm windows kept for the sake of huge pages that
    /// are hardly used goes back too; returns bytes. A limit without swap kills in the moment that it is met, and nobody
    /// could be told in time.
    pub fn balance_rest(&self) -> usize {
        if self.platform.tunables().report.get() == 0 {
            return 0;
        }
        let want = under_pressure(Cause::Idle, false);
        let bytes = self.report_whole(want, |_| 0)
            + self.report_runs(want, |_| 0)
            + self.report_slabs(want, Pass::All)
            + self.report_user_zones(want);
        self.cool_torn();
        self.release_descriptions();
        self.release_shells(0);
        self.publish();
        bytes
    }

    /// Answers pressure at once; returns the bytes given back.
    pub fn balance_pressure(&self, level: Level, cause: Cause) -> usize {
        let now = self.tick();
        if self.platform.tunables().report.get() == 0 || level == Level::None {
            return 0;
        }
        let severe = level == Level::Severe && self.may_drain(now);
        self.forgive();
        let want = under_pressure(cause, severe);
        let mut bytes = self.unmap_while(cause, |blocks| blocks.drop_above(0));
        self.summon_workers(cause, severe);
        bytes += self.report_whole(want, |_| 0);
        let trimmed = if severe {
            self.sink_and_drain() + self.trim_to_nothing(now)
        } else {
            self.drain_idle(now) + self.trim_by_age(now, || self.report_whole(want, |_| 0))
        };
        self.summon_workers(cause, severe);
        bytes += self.report_whole(want, |_| 0);
        bytes += self.report_runs(want, |_| 0);
        bytes += self.report_slabs(want, Pass::All);
        bytes += self.report_collapsed(want, COLLAPSED_PRESSURE);
        bytes += self.report_user_zones(want);
        self.cool_torn();
        self.release_descriptions();
        self.release_shells(SHELLS_UNDER_PRESSURE);
        if trimmed > 0 {
            stats::add(&self.platform.stats().trims, 1);
        }
        self.publish();
        bytes
    }

    /// Under pressure each further node that has a batch's worth of idle pages gets a worker of its own: releasing them
    /// costs most where they are not the caller's own node's. The balancer goes through all nodes itself too, and finds
    /// done what workers did; so they may be late, or refused.
    fn summon_workers(&self, cause: Cause, severe: bool) {
        for node in 1..self.nodes() {
            let idle = |space: &Space| space.zones[node].lock(&self.platform).idle;
            if idle(&self.normal) + idle(&self.low) >= BATCH * PAGEBLOCK_PAGES {
                self.platform.summon(node, cause, severe);
            }
        }
    }

    /// What is free of one node goes back; returns bytes. For that node's worker ([`Platform::summon`]).
    pub fn balance_node(&self, node: usize, cause: Cause, severe: bool) -> usize {
        let want = under_pressure(cause, severe);
        let sites = || [false, true].into_iter().map(|low| self.site(low, node));
        let bytes = sites().map(|site| site.report_whole(want, 0)).sum::<usize>()
            + sites().map(|site| site.report_runs(want, 0)).sum::<usize>()
            + self.report_slabs_of(node, want, Pass::All);
        sites().for_each(|site| site.cool_torn());
        bytes
    }

    /// Everything idle goes back now, whatever it costs to get it again: `malloc_trim`. Objects that have to be taken
    /// down are, by the caller.
    pub fn trim(&self) -> usize {
        let want = Want { cause: Cause::Asked, split: Backing::Huge };
        self.forgive();
        self.drain_cpus();
        self.trim_to_nothing(self.tick());
        self.take_down();
        let bytes = self.unmap_while(want.cause, |blocks| blocks.drop_above(0))
            + self.report_whole(want, |_| 0)
            + self.report_runs(want, |_| 0)
            + self.report_slabs(want, Pass::All)
            + self.report_user_zones(want);
        self.cool_torn();
        self.release_descriptions();
        self.release_shells(0);
        self.publish();
        bytes
    }

    /// The last resort of an allocation that was refused memory: caches give back all they hold.
    #[cold]
    pub(crate) fn reclaim_for_allocation(&self) {
        stats::add(&self.platform.stats().direct_reclaims, 1);
        self.unmap_while(Cause::Limit, |blocks| blocks.drop_above(0));
        self.trim_to_nothing(self.balancer.clock());
    }

    /// Length of a calm window now, ns.
    pub fn calm_window(&self) -> u64 {
        (self.platform.tunables().idle_ms.get() * 1_000_000) << self.balancer.level.load(Relaxed)
    }

    /// Takes in how much of what calm windows gave back was touched again, and sets the length of the next ones.
    fn learn(&self) {
        let (stats, tunables) = (self.platform.stats(), self.platform.tunables());
        let since = |i: usize, total: &AtomicU64| {
            let now = total.load(Relaxed);
            // A fork's child begins its totals anew.
            now.saturating_sub(self.balancer.taken_in[i].swap(now, Relaxed))
        };
        let news = (since(0, &stats.given_back[Cause::Idle as usize]), since(1, &stats.calm_refault_bytes));
        let (idle, horizon) = (tunables.idle_ms.get().max(1), tunables.refault_ms.get());
        // The longest window is the first that is as long as the horizon: nothing comes back sooner than that then.
        let max = horizon.div_ceil(idle).max(1).next_power_of_two().trailing_zeros();
        let now = self.platform.now();
        let mut patience = self.balancer.patience.lock(&self.platform);
        patience.update(now, news, tunables.refault_percent.get(), horizon * 1_000_000);
        patience.cap(max);
        let level = patience.level();
        drop(patience);
        self.balancer.level.store(level, Relaxed);
        stats.patience.store(level.into(), Relaxed);
    }

    /// All that is free in zones of the program's own goes back.
    fn report_user_zones(&self, want: Want) -> usize {
        self.each_user_zone(|site| {
            site.zone.lock(&self.platform).forgive(site.window, BATCH);
            site.report_whole(want, 0) + site.report_runs(want, 0)
        })
    }

    /// Under pressure what was refused before is worth another try.
    fn forgive(&self) {
        self.each_zone(|site, _| {
            site.zone.lock(&self.platform).forgive(site.window, BATCH);
            0
        });
    }

    /// Whether nothing was allocated or freed since the last window's end.
    fn is_quiet(&self) -> bool {
        let stats = self.platform.stats();
        let pushes = self.percpu.pushes();
        stats.fast_frees.store(pushes, Relaxed);
        let counters = [&stats.alloc_misses, &stats.free_misses, &stats.large_allocs];
        let activity = counters.iter().map(|c| c.load(Relaxed)).sum::<u64>() + pushes;
        let quiet = self.balancer.seen.swap(activity, Relaxed) == activity;
        if quiet {
            self.balancer.quiet_windows.fetch_add(1, Relaxed);
        } else {
            self.balancer.quiet_windows.store(0, Relaxed);
        }
        quiet
    }

    /// Whether enough time has passed since the last drain; then this is the time of the next.
    fn may_drain(&self, now: u64) -> bool {
        let interval = self.platform.tunables().severe_interval_ms.get() * 1_000_000;
        // Until it is this late, and memory has recovered, no bucket is made.
        self.balancer.shells_from.store(now + interval, Relaxed);
        let last = self.balancer.last_drain.load(Relaxed);
        let may = last == 0 || now >= last + interval;
        if may {
            self.balancer.last_drain.store(now, Relaxed);
        }
        may
    }

    /// Brings the page of counters up to date.
    pub fn publish(&self) {
        let stats = self.platform.stats();
        let idle: usize = [&self.normal, &self.low]
            .iter()
            .flat_map(|s| s.zones[..self.nodes()].iter())
            .map(|z| z.lock(&self.platform).idle * PAGE)
            .sum();
        let kept = self.mapped.lock(&self.platform).idle;
        stats.idle_bytes.store((idle + kept) as u64, Relaxed);
        self.publish_counts();
    }

    /// The part of [`Heap::publish`] that waits for nobody, for the end of a process, which may come at any moment.
    pub fn publish_counts(&self) {
        let out = |cache: &Cache| {
            let objects = usize::from(cache.shape.get().objects);
            let of = |domain: &Domain| {
                let slabs = domain.slabs.try_lock(&self.platform)?;
                Some(slabs.slabs * objects - slabs.free)
            };
            cache.domains().map(of).sum::<Option<usize>>()
        };
        let stats = self.platform.stats();
        if let Some(out) = self.known().map(out).sum::<Option<usize>>() {
            stats.objects_out.store(out as u64, Relaxed);
        }
        stats.fast_frees.store(self.percpu.pushes(), Relaxed);
    }
}

/// What a report is to take under pressure.
fn under_pressure(cause: Cause, severe: bool) -> Want {
    Want { cause, split: if severe { Backing::Huge } else { Backing::SparseHuge } }
}
