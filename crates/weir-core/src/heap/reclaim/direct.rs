//! Direct reclaim: what an allocation does where memory is short, on slow paths alone. It found no pages, it would exceed the
//! hard limit, or pages became resident while NORMAL is below min.
//!
//! All of it is bounded. An allocation that is served reclaims about as much as it takes. It waits for the balancer only while
//! that is awake, [`MOST_WAITS`] times [`WAIT_NS`] at most. In Linux a thread could be throttled for good:
//! CVE-2024-57884.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::base::cause::Cause;
use crate::base::time::{Nanos, Time};
use crate::base::units::{Bytes, Pages};
use crate::base::zone_class::{ZoneClass, ZoneList};
use crate::evict::shrinkers::thread_of;
use crate::heap::Heap;
use crate::heap::view::view;
use crate::pages::Short;
use crate::platform::Platform;
use crate::policy::scan_priority::{BATCH, FIRST, FIRST_CONGESTED, LAST};
use crate::policy::watermarks::Zone;
use crate::reclaim::node_balancer::{DOZE_NS, Node, Scanned};
use crate::reclaim::{Goal, Kind, Side, run};
use crate::telemetry::stats;

/// Slow-path calls between two looks at the clock where there is no background thread, or it may have to be woken.
const CALLS_PER_LOOK: u32 = 256;
/// How long a throttled allocation waits for progress of the balancer, ns.
const WAIT_NS: Nanos = Nanos(25_000_000);
/// How long it waits in all, in such times: 100 ms (Linux: HZ/10), and one more for each pageblock that it takes.
const WAITS: usize = 4;
/// The most in all: 1 s.
const MOST_WAITS: usize = 40;

view! {
    /// Reclaim that an allocation does for itself, on slow paths.
    pub(crate) struct Direct;
    /// Direct reclaim.
    fn direct;
}

impl<P: Platform> Direct<'_, P> {
    /// To be called at the end of each slow path, under no lock.
    #[inline]
    pub(crate) fn slow_path_ends(self) {
        if let Some((fresh, resident)) = self.heap.pages().events.take_resident() {
            self.make_room(Kind::Room, fresh);
            self.note_resident(resident);
        }
        if !self.heap.platform().has_balancer_thread() {
            if self.heap.pages().events.slow_path(CALLS_PER_LOOK) {
                self.end_window_if_due();
            }
        } else if self.heap.huge_pages.wakes() && self.heap.pages().events.slow_path(CALLS_PER_LOOK) {
            self.heap.watch().wake_for_looks();
        }
    }

    /// Releases idle memory for `pages` that become resident elsewhere. Without it a heap whose sizes change would hold what
    /// it had before and what it has now.
    #[cold]
    pub(crate) fn make_room(self, kind: Kind, pages: Pages) {
        if !pages.is_zero() {
            let goal = Goal { bytes: pages.bytes(), ..self.heap.reclaim().goal(kind, Cause::Idle) };
            self.heap.reclaim().run(&goal);
        }
    }

    /// Without a background thread, slow paths end the window when it is due.
    #[cold]
    fn end_window_if_due(self) {
        let now = self.heap.platform().now();
        if self.heap.reclaim.windows.is_window_over(self.heap.platform(), now) {
            self.heap.reclaim().balance_calm();
        }
    }

    /// Does `work` of an allocation's and counts the time as stalled.
    pub(crate) fn stalled<T>(self, work: impl FnOnce() -> T) -> T {
        let (stats, begin) = (self.heap.platform().stats(), self.heap.platform().now());
        stats::add(&stats.direct_reclaims, 1);
        let result = work();
        let ns = self.heap.platform().now().since(begin).0;
        stats::add(&stats.direct_stall_ns, ns);
        stats.direct_stalls.note(ns);
        result
    }

    /// Tries `attempt`, which found no pages of NORMAL for `bytes`, again and again while reclaim brings some. At a time it
    /// takes no more pages than hold these.
    pub(crate) fn reclaim_for<T>(&self, bytes: Bytes, attempt: impl FnMut() -> Result<T, Short>) -> Result<T, Short> {
        self.reclaim_with(bytes, false, attempt)
    }

    /// [`Direct::reclaim_for`] of whatever the hard limit is known to have refused.
    pub(crate) fn reclaim_for_room<T>(
        &self,
        bytes: Bytes,
        attempt: impl FnMut() -> Result<T, Short>,
    ) -> Result<T, Short> {
        self.reclaim_with(bytes, true, attempt)
    }

    fn reclaim_with<T>(
        &self,
        bytes: Bytes,
        by_limit: bool,
        mut attempt: impl FnMut() -> Result<T, Short>,
    ) -> Result<T, Short> {
        let mut found = Err(Short);
        self.reclaim_until(bytes, by_limit, &mut || {
            found = attempt();
            found.is_ok()
        });
        found
    }

    /// Reclaims for an allocation of `bytes` until `attempt` says that it has succeeded, or no more is to be had. The hard
    /// limit refused it if that is known (`by_limit`), or too little room is left below the limit; else the system did. Compiled
    /// once, whatever is allocated.
    #[cold]
    #[inline(never)]
    fn reclaim_until(&self, bytes: Bytes, by_limit: bool, attempt: &mut dyn FnMut() -> bool) {
        let is_by_limit = || by_limit || self.heap.pages().lacks_hard_room(bytes.pages_up());
        self.stalled(|| {
            if !is_by_limit() {
                let is_found = self.reclaim_and_try(Kind::Shortage, bytes, attempt);
                // Another thread may have taken the room meanwhile.
                if is_found || !is_by_limit() {
                    return;
                }
            }
            self.reclaim_below_hard_limit(bytes, attempt);
        });
    }

    /// Reclaims towards a goal of `kind` until `attempt` succeeds; whether it did.
    #[inline(never)]
    pub(crate) fn reclaim_and_try(&self, kind: Kind, bytes: Bytes, attempt: &mut dyn FnMut() -> bool) -> bool {
        let goal = self.heap.reclaim().goal(kind, Cause::Limit);
        // More than the heap holds is not to be had from caches: they stay as they are.
        let is_possible = bytes == Bytes::MAX || bytes <= self.heap.reclaim().resident_pages().bytes();
        let has_caches = is_possible && self.heap.reclaim().has_evictable(ZoneClass::Normal);
        if has_caches {
            self.heap.reclaim().zone_is_short(ZoneClass::Normal);
        }
        let first = if bytes == Bytes::MAX { goal.priority } else { FIRST };
        let mut is_found = false;
        for priority in (LAST.min(first)..=first).rev() {
            let goal = Goal { bytes, priority, ..goal };
            let got = run(&goal, &self.heap.parts().reclaimable(), |_| {
                is_found = attempt();
                is_found
            });
            self.heap.reclaim().note_bytes(Side::Direct, got);
            is_found = is_found || attempt();
            // A lower priority takes more of what is in use, and of nothing else.
            if is_found || !has_caches {
                break;
            }
        }
        is_found
    }

    /// The hard limit is in the way: memory that is missing is released, then all that can be. Then the program is told, once,
    /// and may free something itself.
    fn reclaim_below_hard_limit(&self, bytes: Bytes, attempt: &mut dyn FnMut() -> bool) {
        let is_possible = self.heap.pages().hard_limit().is_none_or(|limit| bytes <= limit);
        let missing = bytes.saturating_sub(self.heap.pages().hard_room()).max(BATCH.bytes());
        let is_found = is_possible
            && (self.reclaim_and_try(Kind::HardLimit, missing, attempt)
                || self.reclaim_and_try(Kind::HardLimit, Bytes::MAX, attempt)
                || self.ask_program(bytes, attempt));
        if !is_found {
            stats::add(&self.heap.platform().stats().hard_limit_failures, 1);
        }
    }

    /// Tells the program of an allocation that is about to fail; whether `attempt` succeeds after that. While another thread is in
    /// the callback, this one waits for what that frees. It waits for `callback_ms` at most, as the callback may wait for it.
    fn ask_program(&self, bytes: Bytes, attempt: &mut dyn FnMut() -> bool) -> bool {
        let (platform, state) = (self.heap.platform(), &self.heap.reclaim);
        let (me, caller) = (thread_of(platform), &state.in_hard_limit);
        if caller.load(Acquire) == 0 && !platform.hears_hard_limit() {
            return false;
        }
        let end = platform.now() + platform.tunables().callback_ms.ns();
        loop {
            match caller.compare_exchange(0, me, Acquire, Acquire) {
                Ok(_) => {
                    let is_worth_it = platform.hard_limit_reached(bytes.0);
                    caller.store(0, Release);
                    state.throttle.tell(platform);
                    return is_worth_it && self.reclaim_and_try(Kind::HardLimit, Bytes::MAX, attempt);
                }
                // The callback's own allocation would call it without end.
                Err(other) if other == me || !platform.may_wait() => return false,
                Err(other) => {
                    while caller.load(Acquire) == other {
                        let now = platform.now();
                        if now >= end {
                            return false;
                        }
                        state.throttle.wait_unless(platform, Some((end - now).0), || caller.load(Acquire) != other);
                    }
                }
            }
            if self.reclaim_and_try(Kind::HardLimit, Bytes::MAX, attempt) {
                return true;
            }
        }
    }

    /// Evicts from an exclusive class of zones, or from the one of them that has this number (0: all), more and more, until
    /// `attempt` succeeds or nothing is left.
    pub(crate) fn reclaim_of_zone<T>(
        self,
        (zone, zone_number): (ZoneClass, u64),
        bytes: Bytes,
        attempt: impl Fn() -> Result<T, Short>,
    ) -> Result<T, Short> {
        self.heap.reclaim().zone_is_short(zone);
        for priority in (0..=FIRST).rev().take_while(|_| self.heap.reclaim().has_evictable(zone)) {
            let got = self.heap.reclaim().run(&Goal {
                bytes,
                priority,
                zone,
                zone_number,
                ..self.heap.reclaim().goal_of_limit(Kind::balance(zone))
            });
            let [scanned, reclaimed] = [got.scanned, got.total()].map(Bytes::pages_up);
            self.heap.reclaim().note_scan(Side::Direct, Scanned { scanned, reclaimed, elsewhere: Pages::ZERO });
            if let Ok(found) = attempt() {
                return Ok(found);
            }
        }
        attempt()
    }

    /// `pages` became resident, or will once they are handed out. The budget is told, the balancer woken if little is left, and if
    /// next to nothing is they are reclaimed first. Under no lock.
    #[cold]
    pub(crate) fn note_resident(self, pages: Pages) {
        self.heap.platform().heap_has_grown();
        if pages.is_zero() {
            return;
        }
        let (budget, bytes) = (&self.heap.reclaim.budget, pages.bytes().0 as u64);
        budget.promise(bytes, self.heap.platform().now());
        let normal = self.heap.reclaim().normal_zone();
        self.heap.pages().events.told_by(&normal);
        let is_low = !normal.managed.is_zero() && normal.free <= normal.marks.low;
        if is_low {
            self.heap.reclaim().wake_node_balancer(0, ZoneList::Normal, false);
            if normal.free < normal.marks.min && self.heap.reclaim().is_reclaimable(ZoneClass::Normal as usize) {
                self.stalled(|| self.reclaim_for_fresh(pages, &normal));
            }
        }
        // Later, where it waited.
        let is_old = budget.hand_out(bytes, self.heap.platform().now());
        if is_old && !is_low && self.heap.reclaim().has_evictable(ZoneClass::Normal) {
            // A program that fills a cache would come near its limit before the next reading.
            self.heap.platform().wake_balancer();
        }
    }

    /// Reclaims what NORMAL lacks to be at min, of `pages` that were promised.
    fn reclaim_for_fresh(self, pages: Pages, normal: &Zone) {
        let missing = self.heap.reclaim().missing(normal).min(pages.bytes());
        self.reclaim_directly(missing.max(pages.clamp(BATCH, Pages::BLOCK).bytes()));
        self.wait_for_balancer(pages);
    }

    /// Whether NORMAL is no longer below min: an allocation has no cause to reclaim.
    fn is_above_min(self) -> bool {
        let normal = self.heap.reclaim().normal_zone();
        normal.free >= normal.marks.min
    }

    /// Reclaims `bytes`, if there is so much. Of what is in use as little as does it.
    fn reclaim_directly(self, bytes: Bytes) {
        if self.heap.platform().now() < Time(self.heap.reclaim.fruitless_until.load(Relaxed)) {
            return;
        }
        let (mut left, mut moved, evicted) = (bytes, Bytes::ZERO, self.heap.platform().evicted_elsewhere());
        let evicted_since = || Bytes(self.heap.platform().evicted_elsewhere().saturating_sub(evicted) as usize);
        self.heap.reclaim().zone_is_short(ZoneClass::Normal);
        // Where write-back lags, more of what is in use and clean is not the answer: the allocation waits for the balancer.
        let is_congested = self.heap.reclaim.node_balancer.is_congested(ZoneClass::Normal);
        let last = if is_congested { FIRST_CONGESTED } else { LAST };
        for priority in (last..=FIRST).rev() {
            let got = self.heap.reclaim().run(&Goal {
                bytes: left,
                priority,
                ..self.heap.reclaim().goal_of_limit(Kind::Direct)
            });
            self.heap.reclaim().note_bytes(Side::Direct, got);
            left = left.saturating_sub(got.released);
            moved += got.moved;
            // A lower priority takes more of what is in use, and of nothing else. What lies in another allocator's memory is
            // released by that, and shows in the balancer's next reading. What was evicted into slabs the balancer releases.
            let is_enough = left.is_zero() || moved >= bytes || evicted_since() >= bytes || self.is_above_min();
            if is_enough || !self.heap.reclaim().has_evictable(ZoneClass::Normal) {
                break;
            }
        }
        if left == bytes && moved.is_zero() && evicted_since().is_zero() {
            // There was nothing. Other allocations do not search again at once.
            self.heap.reclaim.fruitless_until.store((self.heap.platform().now() + DOZE_NS).0, Relaxed);
        }
    }

    /// Waits while the balancer is at work and half of min is not free. Where it makes no progress waiting is no use, but that it
    /// has no CPU is no reason to have the process killed: an evictable cache is waited for. A shrinker of the program's is not.
    /// It may need a lock that the caller holds.
    fn wait_for_balancer(self, pages: Pages) {
        let platform = self.heap.platform();
        if !self.is_throttled() {
            return;
        }
        let is_patient = self.heap.callbacks.has_cache(platform, ZoneClass::Normal);
        let end = platform.now() + WAIT_NS * (WAITS + pages.blocks()).min(MOST_WAITS) as u64;
        while self.is_throttled() {
            let begin = platform.now();
            self.heap.reclaim.throttle.wait_unless(platform, Some(WAIT_NS.0), || !self.is_throttled());
            let now = platform.now();
            if now >= end || !is_patient && now.since(begin) >= WAIT_NS {
                return;
            }
        }
    }

    /// Whether an allocation is to wait for the balancer. In a program without caches none ever does.
    fn is_throttled(self) -> bool {
        self.heap.platform().has_balancer_thread()
            && self.heap.platform().may_wait()
            && self.heap.reclaim().has_evictable(ZoneClass::Normal)
            && self.heap.reclaim.node_balancer.is_throttled(&self.heap.reclaim(), ZoneClass::Normal)
            // The balancer may wait for the callback that this thread is in.
            && !self.heap.callbacks.runs_here(self.heap.platform())
    }
}
