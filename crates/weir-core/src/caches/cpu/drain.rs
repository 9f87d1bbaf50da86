//! CPUs' buckets are drained into slabs: those of all caches, or of caches that have been idle for long.

use crate::base::class_set::ClassSet;
use crate::base::run_class;
use crate::base::time::Time;
use crate::base::units::{Bytes, Class};
use crate::caches::cache::Counts;
use crate::caches::cache::domain::Domain;
use crate::caches::geometry::{BUCKETED, MAX_BATCH, class_of_number};
use crate::caches::heap_caches::Caches;
use crate::platform::Platform;
use crate::telemetry::stats;

impl<P: Platform> Caches<P> {
    /// Takes every CPU's buckets of all caches back to their slabs, and releases the memory of slots that are empty
    /// then; returns bytes.
    pub(in crate::caches) fn drain_all(&self, turn: usize) -> Bytes {
        let _in_flight = self.pages.batch(0);
        self.give_waiting() + self.drain_set(self.drainable(), turn, true)
    }

    /// [`Caches::drain_all`] at the severe level: all ceilings sink first, by one measure. CPUs are busy, and stopped as
    /// shortly as can be.
    pub(in crate::caches) fn sink_and_drain(&self, turn: usize) -> Bytes {
        let _in_flight = self.pages.batch(0);
        let set = self.drainable();
        let caches = set.from(Class(0)).filter(|&class| !run_class::contains(class));
        for cache in caches.map(|class| self.table.get(class.index())) {
            cache.tuning.sink(&cache.shape.get());
        }
        self.give_waiting() + self.drain_set(set, turn, false)
    }

    /// Takes back what CPUs hold of caches that have been idle for long; returns bytes. Looks at most once a window.
    pub(in crate::caches) fn drain_idle(&self, now: Time, turn: usize) -> Bytes {
        let _in_flight = self.pages.batch(0);
        let mut idle = self.idle.lock(&self.pages.platform);
        if now < idle.ended + self.window_ns() {
            return Bytes::ZERO;
        }
        idle.ended = now;
        self.cpu.pushes();
        let enough = self.pages.platform.tunables().cache_idle_windows.get();
        let mut set = ClassSet::EMPTY;
        for class in self.drainable().from(Class(0)) {
            let visits = |domain: &Domain| domain.depot.lock(&self.pages.platform).visits;
            let cache = if run_class::contains(class) { None } else { Some(self.table.get(class.index())) };
            let visits = cache.map_or(0, |cache| cache.domains().map(visits).sum::<u64>());
            let seen = self.cpu.pushes_of(class) + visits;
            let moved = core::mem::replace(&mut idle.seen[class.index()], seen) != seen;
            let windows = &mut idle.windows[class.index()];
            *windows = if moved { 0 } else { windows.saturating_add(1) };
            if u64::from(*windows) >= enough && self.cpu.held(class).0 > 0 {
                set.insert(class);
            }
        }
        drop(idle);
        let waited = self.give_waiting();
        waited + if set.is_empty() { Bytes::ZERO } else { self.drain_set(set, turn, false) }
    }

    /// Takes every CPU's runs back; returns bytes.
    pub(in crate::caches) fn drain_runs(&self, turn: usize) -> Bytes {
        let _in_flight = self.pages.batch(0);
        let waited = self.give_waiting();
        let set: ClassSet = run_class::all().filter(|&class| self.cpu.held(class).0 > 0).collect();
        waited + if set.is_empty() { Bytes::ZERO } else { self.drain_set(set, turn, false) }
    }

    /// Puts drained objects into their slabs, and runs into their zones.
    fn put_back(&self, class: Class, objects: &[*mut u8]) {
        if run_class::contains(class) {
            objects.iter().for_each(|&run| self.give_run(class, run));
        } else {
            self.to_slabs(class.index(), objects);
        }
    }

    /// The caches that have buckets and that reclaim may look at, and the run classes.
    fn drainable(&self) -> ClassSet {
        let caches = self.reclaimable().take_while(|&number| number < BUCKETED);
        caches.map(class_of_number).chain(run_class::all()).collect()
    }

    /// Takes every CPU's buckets of the caches in `set` back to their slabs. With `release`, gives back the memory of
    /// slots that are empty then. The first node's batch lock is held.
    fn drain_set(&self, set: ClassSet, turn: usize, release: bool) -> Bytes {
        stats::add(&self.pages.platform.stats().drains, 1);
        let mut sink = Sink {
            caches: self,
            batch: [core::ptr::null_mut(); MAX_BATCH],
            n: 0,
            class: Class(0),
            bytes: Bytes::ZERO,
            counted: ClassSet::EMPTY,
        };
        let room = |class| if run_class::contains(class) { 0 } else { self.table.get(class.index()).tuning.ceiling() };
        let first = set.nth(turn);
        self.cpu.drain(&self.pages.platform, set, first, room, release, |class, object| sink.take(class, object));
        sink.flush();
        sink.bytes
    }
}

/// Collects drained objects of a cache and puts them into their slabs a batch at a time.
struct Sink<'a, P: Platform> {
    caches: &'a Caches<P>,
    batch: [*mut u8; MAX_BATCH],
    n: usize,
    class: Class,
    bytes: Bytes,
    /// Caches that this drain has been counted for.
    counted: ClassSet,
}

impl<P: Platform> Sink<'_, P> {
    fn take(&mut self, class: Class, object: *mut u8) {
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
        if run_class::contains(class) {
            // A megabyte on its way is in no count.
            self.flush();
        }
    }

    fn counts(&self, class: Class) -> &Counts {
        &self.caches.table.get(class.index()).counts
    }

    fn flush(&mut self) {
        if self.n > 0 {
            let bytes = Bytes(self.caches.size_of(self.class.index())) * self.n;
            stats::add(&self.counts(self.class).drained, bytes.0 as u64);
            self.caches.put_back(self.class, &self.batch[..self.n]);
            self.bytes += bytes;
            self.n = 0;
        }
    }
}
