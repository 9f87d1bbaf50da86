//! Depots are trimmed: down to the working set, or to nothing. A slab whose last object comes back gives its pages to the
//! zone.
//!
//! At a window's end, however busy the program is, what lay in a depot for all of that window goes too. The estimate does not
//! matter here: it fades over 5 s, in which a program may have gone through a hundred sizes. Tcmalloc's transfer caches are
//! plundered by the same low-water mark.
//!
//! A cache is *stale* by the time since it last ran short: since an allocation found its depot empty. UMA lets a cache give up a
//! quarter of its long-term minimum after 15 minutes without a shortage. Here each calm window trims to the working set anyway.
//! So what is left to give up without any pressure are the CPUs' buckets of idle caches.

use crate::base::time::{Nanos, Time};
use crate::base::units::Bytes;
use crate::caches::cache::domain::Domain;
use crate::caches::geometry::{MAX_BATCH, class_of_number};
use crate::caches::heap_caches::Caches;
use crate::platform::Platform;
use crate::reclaim::Goal;
use crate::telemetry::stats;

/// Windows since the last shortage from which on a cache is stale.
const STALE_WINDOWS: u64 = 2;
/// How long depots may take to give up what lay unused in a window, ns: of `idle_ms`, 300 ms, less than a hundredth.
const UNUSED: Nanos = Nanos(2_000_000);
/// Caches that are put in order at a time, on a stack that may be the program's. Where there are more, the next that many follow.
const ORDERED: usize = 16;
/// How often that is done: each time all caches are looked at. Those that are left go as they come.
const ROUNDS: usize = 16;

/// Which caches a trim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::caches) enum Age {
    /// Caches that did not run short lately.
    Stale,
    /// Caches that ran short lately.
    Warm,
    /// All.
    Any,
}

/// A cache's place in the order: when it ran short, the longest ago first; among equals, where the scan begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    short_at: Time,
    turn: usize,
    number: usize,
}

/// The first places after a given one.
struct ByAge {
    order: [Place; ORDERED],
    len: usize,
}

impl<P: Platform> Caches<P> {
    /// The window of estimates, ns: what the refault meter does to calm windows does not make a cache forget slower.
    pub(in crate::caches) fn window_ns(&self) -> Nanos {
        self.pages.platform.tunables().idle_ms.ns()
    }

    /// Trims the depots of the caches of `age`, until `goal.bytes` are moved; returns how much was.
    #[inline(never)]
    pub(in crate::caches) fn trim(&self, age: Age, goal: &Goal) -> Bytes {
        let (mut bytes, mut after) = (Bytes::ZERO, None);
        // A goal of its own reason takes what it wants, and no more.
        let unused_until = if goal.is_calm() { self.pages.platform.now() + UNUSED } else { Time::ZERO };
        for _ in 0..ROUNDS {
            let next = self.next_by_age(age, goal, after);
            for place in next.iter() {
                if bytes >= goal.bytes {
                    break;
                }
                bytes += self.trim_cache(place.number, goal, goal.bytes - bytes, unused_until);
            }
            after = next.iter().last().copied();
            if next.len < ORDERED || bytes >= goal.bytes {
                after = None;
                break;
            }
        }
        if let Some(last) = after {
            bytes += self.trim_others(age, goal, last, goal.bytes - bytes, unused_until);
        }
        if goal.is_pressure() && !bytes.is_zero() {
            stats::add(&self.pages.platform.stats().trims, 1);
        }
        bytes
    }

    /// The caches of `age` that come after `after` in the order, as many as are ordered at a time. O(caches). Not inline: what it
    /// uses of the stack is free again as a cache is trimmed.
    #[inline(never)]
    fn next_by_age(&self, age: Age, goal: &Goal, after: Option<Place>) -> ByAge {
        let mut next = ByAge { order: [Place::default(); ORDERED], len: 0 };
        let places = self.places(age, goal).filter(|place| after.is_none_or(|after| *place > after));
        places.for_each(|place| next.insert(place));
        next
    }

    /// Trims all caches of `age` behind a place, as they come.
    #[inline(never)]
    fn trim_others(&self, age: Age, goal: &Goal, after: Place, most: Bytes, unused_until: Time) -> Bytes {
        let mut bytes = Bytes::ZERO;
        for place in self.places(age, goal).filter(|place| *place > after) {
            if bytes >= most {
                break;
            }
            bytes += self.trim_cache(place.number, goal, most - bytes, unused_until);
        }
        bytes
    }

    /// The places of the caches of `age` that have anything in their depots. O(caches).
    fn places(&self, age: Age, goal: &Goal) -> impl Iterator<Item = Place> {
        let warm_since = Time(goal.now.since(Time::ZERO).saturating_sub(self.window_ns() * STALE_WINDOWS).0);
        self.reclaimable_from(goal.turn).enumerate().filter_map(move |(turn, number)| {
            let (mut short_at, mut is_empty) = (Time::ZERO, true);
            for domain in self.table.get(number).domains() {
                let depot = domain.depot.lock(&self.pages.platform);
                short_at = short_at.max(depot.short_at);
                is_empty &= depot.is_empty();
            }
            let is_of_age = age == Age::Any || (short_at < warm_since) == (age == Age::Stale);
            (is_of_age && !is_empty).then_some(Place { short_at, turn, number })
        })
    }

    fn trim_cache(&self, number: usize, goal: &Goal, most: Bytes, unused_until: Time) -> Bytes {
        let mut bytes = Bytes::ZERO;
        for domain in self.table.get(number).domains() {
            bytes += self.trim_domain(number, domain, goal, most.saturating_sub(bytes), unused_until);
        }
        if !bytes.is_zero() {
            self.note_trimmed(number, goal, bytes);
        }
        bytes
    }

    /// Counts a trim of `bytes`. Under pressure the cache held more than its working set: its buckets need not be as
    /// large.
    fn note_trimmed(&self, number: usize, goal: &Goal, bytes: Bytes) {
        // So that the number is no other cache's meanwhile, which would get this one's ceiling.
        let _in_flight = self.pages.batch(0);
        if !self.is_reclaimable(number) {
            return;
        }
        let cache = self.table.get(number);
        stats::add(&cache.counts.trims, 1);
        stats::add(&cache.counts.trimmed, bytes.0 as u64);
        if goal.is_pressure() && !goal.empties_caches() {
            cache.tuning.halve(&cache.shape.get());
            self.cpu.resize_all(class_of_number(number), cache.tuning.ceiling());
        }
    }

    /// Trims a depot, until `most` is moved; what lay unused in the window goes until `unused_until`, ns.
    fn trim_domain(&self, number: usize, domain: &Domain, goal: &Goal, most: Bytes, unused_until: Time) -> Bytes {
        let (mut bytes, mut unused) = (Bytes::ZERO, None);
        while bytes < most {
            let mut objects = [core::ptr::null_mut(); MAX_BATCH];
            let _in_flight = self.pages.batch(0);
            if !self.is_reclaimable(number) {
                break;
            }
            let mut depot = domain.depot.lock(&self.pages.platform);
            let unused = unused.get_or_insert(depot.working_set.unused(goal.now, self.window_ns()) as usize);
            let wanted = depot.working_set.update(goal.now, self.window_ns());
            let left = if goal.empties_caches() { 0 } else { wanted as usize };
            let is_in_time = *unused > 0 && self.pages.platform.now() < unused_until;
            let gone = if is_in_time { *unused } else { 0 };
            let surplus = depot.objects.saturating_sub(left).max(gone).min(depot.objects).min(MAX_BATCH);
            if surplus == 0 {
                let spare = depot.take_spare();
                drop(depot);
                self.give_shells(spare);
                break;
            }
            let n = depot.reclaim(&mut objects[..surplus]);
            drop(depot);
            *unused = unused.saturating_sub(n);
            self.to_slabs(number, &objects[..n]);
            bytes += Bytes(self.size_of(number)) * n;
        }
        bytes
    }

    /// What is in depots beyond what `goal` leaves there, as of the last estimate, and of runs in buckets. For the goal of a zone that is low.
    pub(in crate::caches) fn surplus(&self, goal: &Goal) -> Bytes {
        let of = |number: usize| {
            let surplus = |domain: &Domain| {
                let depot = domain.depot.lock(&self.pages.platform);
                let left = if goal.empties_caches() { 0 } else { depot.working_set.size() as usize };
                depot.objects.saturating_sub(left)
            };
            Bytes(self.size_of(number)) * self.table.get(number).domains().map(surplus).sum::<usize>()
        };
        let runs = self.cached_runs();
        self.reclaimable().map(of).sum::<Bytes>() + runs
    }
}

impl ByAge {
    /// Inserts a place, and drops the last one if there are too many.
    fn insert(&mut self, place: Place) {
        let at = self.order[..self.len].partition_point(|other| *other <= place);
        if at == ORDERED {
            return;
        }
        let kept = self.len.min(ORDERED - 1);
        self.order.copy_within(at..kept, at + 1);
        self.order[at] = place;
        self.len = kept + 1;
    }

    fn iter(&self) -> core::slice::Iter<'_, Place> {
        self.order[..self.len].iter()
    }
}
