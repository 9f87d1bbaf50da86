//! Depots give up objects: down to the working set, or all. A slab whose last object comes back gives its pages to the zone.
//!
//! A cache is *stale* by the time since it last ran short: since an allocation found its depot empty. UMA lets a cache
//! give up a quarter of its long-term minimum after 15 minutes without a shortage; here each calm window trims to the
//! working set anyway, so that what is left to give up without any pressure are the CPUs' buckets of idle caches.

use super::Caches;
use super::geometry::{CACHES, MAX_BATCH};
use super::object_cache::Domain;
use crate::platform::Platform;
use crate::reclaim::Goal;
use crate::telemetry::stats;

/// Windows since the last shortage from which on a cache is stale.
const STALE_WINDOWS: u64 = 2;

/// Which caches a trim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// Those that did not run short lately.
    Stale,
    /// Those that did.
    Warm,
    /// All.
    Any,
}

/// Caches by number, those that ran short longest ago first.
struct ByAge {
    order: [(u64, u8); CACHES],
    len: usize,
}

impl<P: Platform> Caches<P> {
    /// The window of estimates, ns: what the refault meter does to calm windows does not make a cache forget slower.
    pub(super) fn window_ns(&self) -> u64 {
        self.pages.platform.tunables().idle_ms.get() * 1_000_000
    }

    /// Trims the depots of the caches of `age`, until `goal.bytes` are moved; returns bytes.
    pub(super) fn trim(&self, age: Age, goal: &Goal) -> usize {
        let mut bytes = 0;
        for &(_, class) in self.by_age(age, goal).iter() {
            if bytes >= goal.bytes {
                break;
            }
            bytes += self.trim_cache(class.into(), goal, goal.bytes - bytes);
        }
        if goal.is_pressure() && bytes > 0 {
            stats::add(&self.pages.platform.stats().trims, 1);
        }
        bytes
    }

    fn by_age(&self, age: Age, goal: &Goal) -> ByAge {
        let mut found = ByAge { order: [(0, 0); CACHES], len: 0 };
        let warm_since = goal.now.saturating_sub(STALE_WINDOWS * self.window_ns());
        let set = self.reclaimable();
        for class in set.from(set.nth(goal.turn)) {
            let short_at = |domain: &Domain| domain.depot.lock(&self.pages.platform).short_at;
            let at = self.table[class].domains().map(short_at).max().unwrap_or(0);
            if age == Age::Any || (at < warm_since) == (age == Age::Stale) {
                found.insert(at, class as u8);
            }
        }
        found
    }

    fn trim_cache(&self, class: usize, goal: &Goal, most: usize) -> usize {
        let (cache, mut bytes) = (&self.table[class], 0);
        for domain in cache.domains() {
            bytes += self.trim_domain(class, domain, goal, most.saturating_sub(bytes));
        }
        if bytes > 0 {
            stats::add(&cache.counts.trims, 1);
            stats::add(&cache.counts.trimmed, bytes as u64);
            if goal.is_pressure() && !goal.empties_caches() {
                // It held more than its working set: its buckets need not be as large.
                cache.tuning.halve(&cache.shape.get());
                self.cpu.resize_all(class, cache.tuning.ceiling());
            }
        }
        bytes
    }

    fn trim_domain(&self, class: usize, domain: &Domain, goal: &Goal, most: usize) -> usize {
        let mut bytes = 0;
        while bytes < most {
            let mut objects = [core::ptr::null_mut(); MAX_BATCH];
            let _in_flight = self.pages.batch(0);
            if !self.is_reclaimable(class) {
                break;
            }
            let mut depot = domain.depot.lock(&self.pages.platform);
            let wanted = depot.working_set.update(goal.now, self.window_ns());
            let keep = if goal.empties_caches() { 0 } else { wanted as usize };
            let surplus = depot.objects.saturating_sub(keep).min(MAX_BATCH);
            if surplus == 0 {
                let spare = depot.take_spare();
                drop(depot);
                self.give_shells(spare);
                break;
            }
            let n = depot.reclaim(&mut objects[..surplus]);
            drop(depot);
            self.to_slabs(class, &objects[..n]);
            bytes += n * self.size_of(class);
        }
        bytes
    }

    /// Bytes in depots beyond what `goal` leaves there, as of the last estimate.
    pub(super) fn surplus(&self, goal: &Goal) -> usize {
        let of = |class: usize| {
            let surplus = |domain: &Domain| {
                let depot = domain.depot.lock(&self.pages.platform);
                let keep = if goal.empties_caches() { 0 } else { depot.working_set.size() as usize };
                depot.objects.saturating_sub(keep)
            };
            self.table[class].domains().map(surplus).sum::<usize>() * self.size_of(class)
        };
        self.reclaimable().from(0).map(of).sum()
    }
}

impl ByAge {
    /// Stable within equal ages, so that the rotation counts; in place, and there are few.
    fn insert(&mut self, at: u64, class: u8) {
        let place = self.order[..self.len].partition_point(|&(other, _)| other <= at);
        self.order.copy_within(place..self.len, place + 1);
        self.order[place] = (at, class);
        self.len += 1;
    }

    fn iter(&self) -> core::slice::Iter<'_, (u64, u8)> {
        self.order[..self.len].iter()
    }
}
