//! Direct reclaim: what an allocation does where memory is short, on slow paths alone. It found no pages, it would exceed the
//! hard limit, or pages became resident while NORMAL is below min.
//!
//! All of it is bounded: an allocation that is served reclaims about as much as it takes, and waits for the balancer only while
//! that is awake and makes progress, [`WAITS`] times [`WAIT_NS`] at most. (In Linux a thread could be throttled for good:
//! CVE-2024-57884.)

use core::ptr::NonNull;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Heap;
use super::node::HeapNode;
use crate::base::cause::Cause;
use crate::base::units::{PAGE, PAGEBLOCK_PAGES, order_of};
use crate::base::zone_class::ZoneClass;
use crate::pages::user_zone::UserZone;
use crate::pages::zone::PageRun;
use crate::pages::{Hold, Short};
use crate::platform::Platform;
use crate::policy::scan_priority::{BATCH, FIRST, LAST};
use crate::policy::watermarks::Zone;
use crate::reclaim::node_balancer::{DOZE_NS, Node, Scanned};
use crate::reclaim::{Goal, Kind, Reclaimed, Side, run};
use crate::telemetry::stats;

/// How long a throttled allocation waits for progress of the balancer, ns.
const WAIT_NS: u64 = 25_000_000;
/// How often, while there is progress: at most 100 ms in all (Linux: HZ/10).
const WAITS: u32 = 4;

impl<P: Platform> Heap<P> {
    /// Counts what one side reclaimed.
    pub(super) fn note_bytes(&self, side: Side, got: Reclaimed) {
        let pages =
            Scanned { scanned: got.scanned.div_ceil(PAGE), reclaimed: got.released.div_ceil(PAGE), elsewhere: 0 };
        self.note_scan(side, pages);
    }

    /// Does `work` of an allocation's and counts the time as stalled.
    pub(super) fn stalled<T>(&self, work: impl FnOnce() -> T) -> T {
        let (stats, begin) = (self.platform().stats(), self.platform().now());
        stats::add(&stats.direct_reclaims, 1);
        let result = work();
        let ns = self.platform().now().saturating_sub(begin);
        stats::add(&stats.direct_stall_ns, ns);
        stats.direct_stalls.note(ns);
        result
    }

    // ---- an allocation found nothing ---------------------------------------------------------------------------

    /// Tries `attempt`, which found no pages, again and again while reclaim brings some.
    #[cold]
    pub(super) fn reclaim_for<T>(&self, bytes: usize, attempt: impl FnMut() -> Result<T, Short>) -> Result<T, Short> {
        self.stalled(|| match self.pages().hard_limit() {
            Some(_) => self.reclaim_below_hard_limit(bytes, attempt),
            None => self.reclaim_and_try(Kind::Shortage, bytes, attempt),
        })
    }

    /// Reclaims towards a goal of `kind` until `attempt` succeeds.
    pub(super) fn reclaim_and_try<T>(
        &self,
        kind: Kind,
        bytes: usize,
        mut attempt: impl FnMut() -> Result<T, Short>,
    ) -> Result<T, Short> {
        let goal = Goal::new(kind, Cause::Limit, self.pages().events.clock(), self.windows.next_turn());
        // More than the heap holds is not to be had from caches: they stay as they are.
        let is_possible = bytes == usize::MAX || bytes <= self.resident_pages() * PAGE;
        let has_caches = is_possible && self.evictable(ZoneClass::Normal) > 0;
        if has_caches {
            self.zone_is_short(ZoneClass::Normal);
        }
        let first = if bytes == usize::MAX { goal.priority } else { FIRST };
        let mut found = Err(Short);
        for priority in (LAST.min(first)..=first).rev() {
            let goal = Goal { bytes, priority, ..goal };
            let got = self.with_reclaimables(|all| {
                run(&goal, all, |_| {
                    found = attempt();
                    found.is_ok()
                })
            });
            self.note_bytes(Side::Direct, got);
            if found.is_err() {
                found = attempt();
            }
            // A lower priority takes more of what is in use, and of nothing else.
            if found.is_ok() || !has_caches {
                break;
            }
        }
        found
    }

    /// The hard limit is in the way: what is missing is released; then all that can be; then the program is told, once, and
    /// may free something itself.
    fn reclaim_below_hard_limit<T>(
        &self,
        bytes: usize,
        mut attempt: impl FnMut() -> Result<T, Short>,
    ) -> Result<T, Short> {
        if self.pages().hard_limit().is_some_and(|limit| bytes > limit) {
            stats::add(&self.platform().stats().hard_limit_failures, 1);
            return Err(Short);
        }
        let missing = bytes.saturating_sub(self.pages().hard_room()).max(BATCH * PAGE);
        let found = self
            .reclaim_and_try(Kind::HardLimit, missing, &mut attempt)
            .or_else(|Short| self.reclaim_and_try(Kind::HardLimit, usize::MAX, &mut attempt))
            .or_else(|Short| {
                // The callback may allocate, and so come here again, on this thread or on one that it waits for.
                if self.in_hard_limit.swap(true, Acquire) {
                    return Err(Short);
                }
                let is_worth_it = self.platform().hard_limit_reached(bytes);
                self.in_hard_limit.store(false, Release);
                if is_worth_it { self.reclaim_and_try(Kind::HardLimit, usize::MAX, &mut attempt) } else { Err(Short) }
            });
        if found.is_err() {
            stats::add(&self.platform().stats().hard_limit_failures, 1);
        }
        found
    }

    /// Room below the hard limit for a zone of the program's own that is resident from the start, `bytes` in all: to be held
    /// from before it is mapped until it is added. Reclaims where the limit is in the way.
    pub fn room_for_zone(&self, bytes: usize) -> Result<Hold<'_>, Short> {
        let hold = || self.pages().hold(bytes).ok_or(Short);
        hold().or_else(|Short| self.reclaim_for(bytes, hold))
    }

    /// [`crate::pages::Pages::add_zone`], of which the budget is told where the zone is resident from the start.
    ///
    /// # Safety
    /// As there: it lives, where it is, until [`crate::pages::Pages::remove_zone`] returns, is added once, and is used through
    /// shared references alone meanwhile.
    pub unsafe fn add_zone(&self, zone: NonNull<UserZone>) {
        // SAFETY: the caller's promise is the one that is demanded.
        unsafe { self.pages().add_zone(zone) };
        // SAFETY: the caller keeps the zone where it is, and shares it alone.
        self.note_resident(unsafe { zone.as_ref() }.resident_from_start());
    }

    /// [`crate::pages::Pages::zone_take`], which reclaims what caches hold of the zone's class where there is nothing free.
    pub fn zone_take(&self, zone: &UserZone, pages: usize, align: u32) -> Result<PageRun, Short> {
        let take = || self.pages().zone_take(zone, pages, align);
        if !zone.can_serve(pages, align) {
            // No memory would help.
            return Err(Short);
        }
        let run = take().or_else(|Short| {
            let class = zone.class();
            self.wake_node_balancer(align.max(order_of(pages.max(1))), class, true);
            if class.is_exclusive() && self.evictable(class) > 0 {
                self.stalled(|| self.reclaim_of_zone(class, pages * PAGE, take))
            } else if self.pages().hard_limit().is_some() {
                self.reclaim_for(pages * PAGE, take)
            } else {
                Err(Short)
            }
        })?;
        if zone.class() == ZoneClass::Normal {
            // The caller may hold what reclaim would wait for: the balancer alone is woken. (A locked zone counted as it was
            // made, and huge pages of the pool are in no limit of memory.)
            self.note_fresh(run.fresh);
        }
        Ok(run)
    }

    /// Evicts from an exclusive class of zones, more and more, until `attempt` succeeds or nothing is left.
    fn reclaim_of_zone<T>(
        &self,
        zone: ZoneClass,
        bytes: usize,
        attempt: impl Fn() -> Result<T, Short>,
    ) -> Result<T, Short> {
        self.zone_is_short(zone);
        for priority in (0..=FIRST).rev().take_while(|_| self.evictable(zone) > 0) {
            let got = self.reclaim_by(|goal| Goal { bytes, priority, ..goal }, Kind::Balance { zone });
            let reclaimed = got.total().div_ceil(PAGE);
            let pages = Scanned { scanned: got.scanned.div_ceil(PAGE), reclaimed, elsewhere: 0 };
            self.note_scan(Side::Direct, pages);
            if let Ok(found) = attempt() {
                return Ok(found);
            }
        }
        attempt()
    }

    // ---- an allocation was served ------------------------------------------------------------------------------

    /// `pages` became resident, or will: the budget is told, and the balancer woken if little is left; then NORMAL is returned.
    fn note_fresh(&self, pages: usize) -> Option<Zone> {
        if pages == 0 {
            return None;
        }
        self.budget.fresh((pages * PAGE) as u64);
        let normal = self.normal_zone();
        if normal.managed == 0 || normal.free > normal.marks.low {
            return None;
        }
        self.wake_node_balancer(0, ZoneClass::Normal, false);
        Some(normal)
    }

    /// The same, and reclaims if next to nothing is. Under no lock.
    #[cold]
    pub(super) fn note_resident(&self, pages: usize) {
        self.platform().heap_has_grown();
        let Some(normal) = self.note_fresh(pages) else { return };
        if normal.free < normal.marks.min && HeapNode(self).is_reclaimable(ZoneClass::Normal as usize) {
            self.stalled(|| {
                self.reclaim_directly(pages.clamp(BATCH, PAGEBLOCK_PAGES) * PAGE);
                self.wait_for_balancer();
            });
        }
    }

    /// Reclaims `bytes`, if there is so much. Of what is in use as little as does it.
    fn reclaim_directly(&self, bytes: usize) {
        if self.platform().now() < self.fruitless_until.load(Relaxed) {
            return;
        }
        let (mut left, evicted) = (bytes, self.platform().evicted_elsewhere());
        let evicted_since = || self.platform().evicted_elsewhere().saturating_sub(evicted) as usize;
        self.zone_is_short(ZoneClass::Normal);
        for priority in (LAST..=FIRST).rev() {
            let got = self.reclaim_by(|goal| Goal { bytes: left, priority, ..goal }, Kind::Direct);
            self.note_bytes(Side::Direct, got);
            left = left.saturating_sub(got.released);
            // A lower priority takes more of what is in use, and of nothing else. What lies in another allocator's memory is
            // released by that, and shows in the balancer's next reading.
            if left == 0 || evicted_since() >= bytes || self.evictable(ZoneClass::Normal) == 0 {
                break;
            }
        }
        if left == bytes && evicted_since() == 0 {
            // There was nothing. Other allocations do not search again at once.
            self.fruitless_until.store(self.platform().now() + DOZE_NS, Relaxed);
        }
    }

    /// Waits while the balancer is at work and half of min is not free. Where it makes no progress waiting is no use.
    fn wait_for_balancer(&self) {
        for _ in 0..WAITS {
            let begin = self.platform().now();
            if !self.is_throttled() {
                return;
            }
            self.throttle.wait(self.platform(), WAIT_NS, || !self.is_throttled());
            if self.platform().now().saturating_sub(begin) >= WAIT_NS {
                return;
            }
        }
    }

    /// Whether an allocation is to wait for the balancer. In a program without caches none ever does.
    fn is_throttled(&self) -> bool {
        self.platform().has_balancer_thread()
            && self.platform().may_wait()
            && self.evictable(ZoneClass::Normal) > 0
            && self.node_balancer.is_throttled(&HeapNode(self), ZoneClass::Normal)
            // The balancer may wait for the callback that this thread is in.
            && !self.callbacks.runs_here(self.platform())
    }
}
