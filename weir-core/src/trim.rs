//! What caches give back, in which order, how much: trims down to working sets, drains of CPUs' buckets.
//!
//! | who asks | depots | CPUs' buckets | ceilings |
//! |---|---|---|---|
//! | a calm window | to the working set | of caches idle for `cache_idle_windows` | |
//! | soft pressure | the same at once; stalest first, warm ones last | the same | halved, where there was too much |
//! | severe pressure, once in `severe_interval_ms` | to nothing | all | all half of the way to the least |
//! | severe pressure before that | as soft pressure | | |
//!
//! A cache is *stale* by the time since it last ran short: since an allocation found its depot empty. UMA lets a cache
//! give up a quarter of its long-term minimum after 15 minutes without a shortage; here each calm window trims to the
//! working set anyway, so that what is left to give up without any pressure are the CPUs' buckets of idle caches.

use crate::class_set::ClassSet;
use crate::geometry::{CACHES, MAX_BATCH};
use crate::heap::Heap;
use crate::object_cache::{Cache, Domain};
use crate::platform::Platform;
use crate::stats;

/// What the last window's end knew of each cache: for telling idle ones.
pub(crate) struct Idle {
    /// Frees and visits so far.
    seen: [u64; CACHES],
    windows: [u32; CACHES],
    ended: u64,
}

impl Idle {
    pub(crate) const fn new() -> Self {
        Self { seen: [0; CACHES], windows: [0; CACHES], ended: 0 }
    }
}

/// How far a depot is trimmed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    WorkingSet,
    Nothing,
}

impl<P: Platform> Heap<P> {
    /// The window of estimates, ns: what the refault meter does to calm windows does not make a cache forget slower.
    fn window_ns(&self) -> u64 {
        self.platform.tunables().idle_ms.get() * 1_000_000
    }

    /// Trims all depots to their working sets; returns bytes.
    pub(crate) fn trim_calmly(&self, now: u64) -> usize {
        let set = self.reclaimable();
        set.from(self.balancer.next_start(set))
            .map(|class| {
                let cache = &self.caches[class];
                cache.tuning.end_window();
                cache.domains().for_each(|domain| domain.depot.lock(&self.platform).points.end_window());
                self.trim_cache(class, now, To::WorkingSet)
            })
            .sum()
    }

    /// Trims depots to their working sets, those that ran short longest ago first, and halves the buckets of those
    /// that held more; calls `after_stale` between the caches that did not run short in this window and the last, and
    /// those that did. Returns bytes, its own too.
    pub(crate) fn trim_by_age(&self, now: u64, after_stale: impl FnOnce() -> usize) -> usize {
        let mut order = [(0u64, 0u8); CACHES];
        let mut n = 0;
        let set = self.reclaimable();
        for class in set.from(self.balancer.next_start(set)) {
            let short_at = |domain: &Domain| domain.depot.lock(&self.platform).short_at;
            order[n] = (self.caches[class].domains().map(short_at).max().unwrap_or(0), class as u8);
            n += 1;
        }
        // Stable within equal ages, so that the rotation counts; insertion does it in place, and there are few.
        for i in 1..n {
            let mut j = i;
            while j > 0 && order[j - 1].0 > order[j].0 {
                order.swap(j - 1, j);
                j -= 1;
            }
        }
        let warm_since = now.saturating_sub(2 * self.window_ns());
        let stale = order[..n].partition_point(|&(short_at, _)| short_at < warm_since);
        let trim = |&(_, class): &(u64, u8)| {
            let cache = &self.caches[usize::from(class)];
            let bytes = self.trim_cache(class.into(), now, To::WorkingSet);
            if bytes > 0 {
                cache.tuning.halve(&cache.shape.get());
                self.percpu.resize_all(class.into(), cache.tuning.ceiling());
            }
            bytes
        };
        let bytes = order[..stale].iter().map(trim).sum::<usize>();
        let reported = if bytes > 0 { after_stale() } else { 0 };
        bytes + reported + order[stale..n].iter().map(trim).sum::<usize>()
    }

    /// Empties all depots; returns bytes.
    pub(crate) fn trim_to_nothing(&self, now: u64) -> usize {
        let set = self.reclaimable();
        set.from(self.balancer.next_start(set)).map(|class| self.trim_cache(class, now, To::Nothing)).sum()
    }

    fn trim_cache(&self, class: usize, now: u64, to: To) -> usize {
        let cache = &self.caches[class];
        let bytes = cache.domains().map(|domain| self.trim_domain(class, domain, now, to)).sum::<usize>();
        if bytes > 0 {
            stats::add(&cache.counts.trims, 1);
            stats::add(&cache.counts.trimmed, bytes as u64);
        }
        bytes
    }

    fn trim_domain(&self, class: usize, domain: &Domain, now: u64, to: To) -> usize {
        let mut bytes = 0;
        loop {
            let mut objects = [core::ptr::null_mut(); MAX_BATCH];
            let _in_flight = self.balancer.batch(&self.platform, 0);
            if !self.is_reclaimable(class) {
                return bytes;
            }
            let mut depot = domain.depot.lock(&self.platform);
            let wanted = depot.working_set.update(now, self.window_ns());
            let keep = if to == To::Nothing { 0 } else { wanted as usize };
            let surplus = depot.objects.saturating_sub(keep).min(MAX_BATCH);
            if surplus == 0 {
                let spare = depot.take_spare();
                drop(depot);
                self.give_shells(spare);
                return bytes;
            }
            let n = depot.reclaim(&mut objects[..surplus]);
            drop(depot);
            self.to_slabs(class, &objects[..n]);
            bytes += n * self.size_of(class);
        }
    }

    // ---- CPUs' buckets -----------------------------------------------------------------------------------------

    /// Takes every CPU's buckets of all caches back to their slabs; returns bytes.
    pub(crate) fn drain_cpus(&self) -> usize {
        let _in_flight = self.balancer.batch(&self.platform, 0);
        self.drain_set(self.reclaimable(), true)
    }

    /// The last resort's part of it: all ceilings sink first, by the same measure.
    pub(crate) fn sink_and_drain(&self) -> usize {
        let _in_flight = self.balancer.batch(&self.platform, 0);
        let set = self.reclaimable();
        set.from(0).for_each(|class| self.caches[class].tuning.sink(&self.caches[class].shape.get()));
        // CPUs are busy, and stopped as shortly as can be.
        self.drain_set(set, false)
    }

    /// Takes back what CPUs hold of caches that have been idle for long; returns bytes. Looks at most once a window.
    pub(crate) fn drain_idle(&self, now: u64) -> usize {
        let _in_flight = self.balancer.batch(&self.platform, 0);
        let mut idle = self.idle.lock(&self.platform);
        if now < idle.ended + self.window_ns() {
            return 0;
        }
        idle.ended = now;
        self.percpu.pushes();
        let enough = self.platform.tunables().cache_idle_windows.get();
        let mut set = ClassSet::EMPTY;
        for class in self.reclaimable().from(0) {
            let visits = |domain: &Domain| domain.depot.lock(&self.platform).visits;
            let seen = self.percpu.pushes_of(class) + self.caches[class].domains().map(visits).sum::<u64>();
            let moved = core::mem::replace(&mut idle.seen[class], seen) != seen;
            idle.windows[class] = if moved { 0 } else { idle.windows[class].saturating_add(1) };
            if u64::from(idle.windows[class]) >= enough && self.percpu.held(class).0 > 0 {
                set.insert(class);
            }
        }
        drop(idle);
        if set.is_empty() { 0 } else { self.drain_set(set, false) }
    }

    /// Takes every CPU's buckets of the caches in `set` back to their slabs, and with `release` the memory of slots that are
    /// empty then; the balancer's batch lock is held.
    fn drain_set(&self, set: ClassSet, release: bool) -> usize {
        stats::add(&self.platform.stats().drains, 1);
        let mut sink = Sink {
            heap: self,
            batch: [core::ptr::null_mut(); MAX_BATCH],
            n: 0,
            class: 0,
            bytes: 0,
            counted: ClassSet::EMPTY,
        };
        let room = |class: usize| self.caches[class].tuning.ceiling();
        let first = self.balancer.next_start(set);
        self.percpu.drain(&self.platform, set, first, room, release, |class, object| sink.take(class, object));
        sink.flush();
        sink.bytes
    }
}

/// Collects drained objects of a cache and puts them into their slabs a batch at a time.
struct Sink<'a, P: Platform> {
    heap: &'a Heap<P>,
    batch: [*mut u8; MAX_BATCH],
    n: usize,
    class: usize,
    bytes: usize,
    /// Caches that this drain has been counted for.
    counted: ClassSet,
}

impl<P: Platform> Sink<'_, P> {
    fn take(&mut self, class: usize, object: *mut u8) {
        if self.n == MAX_BATCH || class != self.class {
            self.flush();
            if !self.counted.contains(class) {
                self.counted.insert(class);
                stats::add(&self.counts(class).drains, 1);
            }
            self.class = class;
        }
        self.batch[self.n] = object;
        self.n += 1;
    }

    fn counts(&self, class: usize) -> &crate::object_cache::Counts {
        let cache: &Cache = &self.heap.caches[class];
        &cache.counts
    }

    fn flush(&mut self) {
        if self.n > 0 {
            let bytes = self.n * self.heap.size_of(self.class);
            stats::add(&self.counts(self.class).drained, bytes as u64);
            self.heap.to_slabs(self.class, &self.batch[..self.n]);
            self.bytes += bytes;
            self.n = 0;
        }
    }
}
