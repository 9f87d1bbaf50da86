//! What the heap makes of limits and of pressure: the budget, the balancer's work, relief, and whether caches may grow.

use core::sync::atomic::Ordering::Relaxed;

use super::Heap;
use super::node::HeapNode;
use crate::base::cause::Cause;
use crate::base::level::Level;
use crate::base::units::PAGE;
use crate::base::zone_class::ZoneClass;
use crate::platform::Platform;
use crate::policy::scan_priority::{FIRST, LAST, LAST_BOOSTED};
use crate::policy::watermarks::{boost_step, is_zone_balanced};
use crate::reclaim::balancer_turn::{Next, Turn};
use crate::reclaim::budget::Room;
use crate::reclaim::{Goal, Kind, Side};
use crate::telemetry::stats;

/// What NORMAL may hold and holds, bytes; 0 in `capacity`: nothing limits it, or nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetFigures {
    /// What may be resident below the tightest limit.
    pub capacity: usize,
    /// What is, the share of others included.
    pub resident: usize,
    /// What may still become resident.
    pub free: usize,
    /// Below it an allocation reclaims by itself.
    pub min: usize,
    /// Below it the balancer wakes.
    pub low: usize,
    /// Above it caches may grow.
    pub high: usize,
    /// The level of pressure.
    pub level: Level,
}

impl<P: Platform> Heap<P> {
    // ---- for the thread that reads limits ----------------------------------------------------------------------

    /// A reading of the tightest limit. If little is left the balancer has something to do: [`Heap::balance_zones`] is to be
    /// called.
    pub fn read_room(&self, room: Room) {
        let released = self.platform().stats().given_back.iter().map(|bytes| bytes.load(Relaxed)).sum();
        self.budget.read(room, released);
        if self.platform().has_balancer_thread() {
            let is_woken = self.node_balancer.wake(&HeapNode(self), 0, ZoneClass::Normal, false);
            stats::add(&self.platform().stats().wakeups, is_woken.into());
        }
    }

    /// One step of the balancer's, on its thread.
    pub fn balance_zones(&self, turn: &mut Turn) -> Next {
        self.node_balancer.step(&HeapNode(self), turn)
    }

    /// Whether the balancer has a request that it has not seen yet.
    pub fn is_balancer_asked(&self) -> bool {
        self.node_balancer.is_asked()
    }

    /// Whether pressure is to be heard of whatever the heap holds: there is a callback, a reader of events or a page pool.
    pub fn hears_pressure(&self) -> bool {
        self.callbacks.are_there() || self.page_pools.are_there()
    }

    /// When there may be relief that a cache or a subscriber waits for, ns.
    pub fn relief_due(&self) -> Option<u64> {
        let due = self.pressure.relief_due(self.relief_ns())?;
        self.with_reclaimables(|all| all.iter().any(|part| part.hears_pressure())).then_some(due)
    }

    /// Says that pressure is over, if it is: no event for `relief_ms`, and NORMAL is balanced. Caches may grow again.
    pub fn relieve_if_due(&self) {
        let normal = ZoneClass::Normal as usize;
        let is_balanced = || is_zone_balanced(&self.node_balancer.view(&HeapNode(self)), normal, 0, normal);
        if self.pressure.relieve(self.platform().now(), self.relief_ns(), is_balanced) {
            let stats = self.platform().stats();
            stats::add(&stats.reliefs, 1);
            stats.pressure_level.store(Level::None as u64, Relaxed);
            self.with_reclaimables(|all| all.iter().for_each(|part| part.pressure_changed(Level::None)));
            // An event that came meanwhile may have been told before the relief: it is told again.
            let level = self.pressure.level();
            if level > Level::None {
                stats.pressure_level.store(level as u64, Relaxed);
                self.callbacks.raise(self.platform(), level, Cause::Pressure);
            }
        }
    }

    /// A pressure event: the level rises, if it does, and stays until relief.
    pub(super) fn pressure_is(&self, level: Level, now: u64) {
        let before = self.pressure.raise(level, now);
        self.platform().stats().pressure_level.store(level.max(before) as u64, Relaxed);
        if level > before {
            self.with_reclaimables(|all| all.iter().for_each(|part| part.pressure_changed(level)));
        }
    }

    /// A zone in which caches of the program's lie is short, and they are about to shrink: that is pressure, as any other.
    pub(super) fn zone_is_short(&self, zone: ZoneClass) {
        if self.evictable(zone) == 0 {
            return;
        }
        if self.pressure.level() == Level::None {
            let has_limit = self.platform().tunables().limit.get() != 0;
            self.note_pressure(Level::Some, if has_limit { Cause::Limit } else { Cause::Pressure });
            // Its thread sees to relief; it may be asleep without a time to wake up.
            if self.platform().has_balancer_thread() {
                self.platform().wake_balancer();
            }
        } else {
            self.pressure_is(Level::Some, self.platform().now());
        }
    }

    /// Has the balancer reclaim a part of what caches hold, as pressure comes from outside; returns what went at once. What is idle has gone by now; a
    /// program without caches has nothing more to give.
    pub(super) fn boost(&self, level: Level) -> usize {
        if self.evictable(ZoneClass::Normal) == 0 {
            return 0;
        }
        let (node, resident) = (HeapNode(self), self.resident_pages());
        if !self.platform().has_balancer_thread() {
            return self.reclaim_boost(boost_step(resident, level == Level::Severe), level);
        }
        stats::add(&self.platform().stats().wake_requests, 1);
        if self.node_balancer.boost(&node, ZoneClass::Normal, resident, level == Level::Severe) {
            stats::add(&self.platform().stats().wakeups, 1);
        }
        0
    }

    /// Without a balancer's thread: reclaims `pages` of what caches hold at once; returns bytes.
    fn reclaim_boost(&self, pages: usize, level: Level) -> usize {
        let (may_write, mut left) = (level == Level::Severe, pages * PAGE);
        for priority in (if may_write { LAST } else { LAST_BOOSTED }..=FIRST).rev() {
            let kind = Kind::Balance { zone: ZoneClass::Normal };
            let before = self.platform().evicted_elsewhere();
            let got = self.reclaim_by(|goal| Goal { bytes: left, priority, may_write, ..goal }, kind);
            self.note_bytes(Side::Balancer, got);
            let elsewhere = self.platform().evicted_elsewhere().saturating_sub(before) as usize;
            left = left.saturating_sub(got.released.max(elsewhere));
            if left == 0 {
                break;
            }
        }
        pages * PAGE - left
    }

    // ---- for all threads ---------------------------------------------------------------------------------------

    /// A request of `order` whose highest zone is `highest` found little free, or nothing (`is_short`).
    pub(super) fn wake_node_balancer(&self, order: u32, highest: ZoneClass, is_short: bool) {
        if !self.platform().has_balancer_thread() {
            return;
        }
        let stats = self.platform().stats();
        stats::add(&stats.wake_requests, 1);
        if self.node_balancer.wake(&HeapNode(self), order, highest, is_short) {
            stats::add(&stats.wakeups, 1);
            self.platform().wake_balancer();
        }
    }

    /// Bytes in use, in zones of a class, that caches of the program's would give up.
    pub(super) fn evictable(&self, zone: ZoneClass) -> usize {
        self.with_reclaimables(|all| all.iter().map(|part| part.evictable(zone)).sum())
    }

    /// How long a level of pressure, and what it adds to the watermarks, outlast the last event, ns.
    pub(super) fn relief_ns(&self) -> u64 {
        self.platform().tunables().relief_ms.get() * 1_000_000
    }

    /// Whether a cache of the program's may take `bytes` more: there is no pressure, nor was there since the last relief, and
    /// NORMAL stays above high.
    pub fn may_grow(&self, bytes: usize) -> bool {
        let is_free = || {
            let normal = self.normal_zone();
            normal.managed == 0 || normal.free > normal.marks.high + bytes.div_ceil(PAGE)
        };
        self.pressure.level() == Level::None && !self.node_balancer.is_congested(ZoneClass::Normal) && is_free()
    }

    /// A cache's write-back lags behind what reclaim wants of a class of zones: until the balancer has seen to it, caches do
    /// not grow.
    pub fn set_congested(&self, zone: ZoneClass) {
        self.node_balancer.set_congested(zone);
    }

    /// What NORMAL may hold, and holds.
    pub fn budget_figures(&self) -> BudgetFigures {
        let normal = self.normal_zone();
        let marks = normal.marks;
        BudgetFigures {
            capacity: normal.managed * PAGE,
            resident: (normal.managed - normal.free) * PAGE,
            free: normal.free * PAGE,
            min: marks.min * PAGE,
            low: marks.low * PAGE,
            high: marks.high * PAGE,
            level: self.pressure.level(),
        }
    }

    /// In a forked child: nothing is known of its limits, and no thread of the parent's is there.
    pub(super) fn inherit_pressure(&self) {
        self.node_balancer.inherit();
        self.pressure.inherit();
        self.budget.inherit();
        self.throttle.inherit();
        self.pages().hard_limit.inherit();
        self.in_hard_limit.store(false, Relaxed);
    }
}
