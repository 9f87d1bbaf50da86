//! Answers of reclaim to limits and pressure: the budget, the balancer's work, relief, and whether caches may grow.

use core::sync::atomic::Ordering::Relaxed;

use super::Reclaim;
use crate::base::cause::Cause;
use crate::base::level::Level;
use crate::base::time::{Nanos, Time};
use crate::base::units::{Bytes, Pages};
use crate::base::zone_class::{ZoneClass, ZoneList};
use crate::platform::Platform;
use crate::policy::scan_priority::{FIRST, LAST, LAST_BOOSTED};
use crate::policy::watermarks::is_zone_balanced;
use crate::reclaim::balancer_turn::{Next, Turn};
use crate::reclaim::budget::Room;
use crate::reclaim::node_balancer::Node;
use crate::reclaim::{Goal, Kind, Side};
use crate::telemetry::stats;

/// Budget of NORMAL, bytes; 0 in `capacity`: nothing limits it, or nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetFigures {
    /// Bytes that may be resident below the tightest limit.
    pub capacity: usize,
    /// Bytes that are resident, the share of others included.
    pub resident: usize,
    /// Bytes that may still become resident.
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

impl<P: Platform> Reclaim<'_, P> {
    /// A reading of the tightest limit. If little is left the balancer has something to do: [`Reclaim::balance_zones`] is to be
    /// called. Returns how much others took since the last reading, bytes, or gave back: 0 where it was of another limit.
    pub fn read_room(&self, room: Room) -> i64 {
        let released = self.heap.pages().given_back();
        let others = self.heap.reclaim.budget.read(room, released, self.heap.platform().now());
        self.heap.pages().events.told_by(&self.normal_zone());
        if self.heap.platform().has_balancer_thread() {
            self.ask_balancer(false);
        }
        others
    }

    /// On the balancer's thread: it has something to do where NORMAL is below low, or, with `up_to_high`, below high.
    pub(crate) fn ask_balancer(&self, up_to_high: bool) {
        let is_woken = self.heap.reclaim.node_balancer.wake(self, 0, ZoneList::Normal, up_to_high);
        let stats = self.heap.platform().stats();
        stats::add(&stats.wake_requests, is_woken.into());
        stats::add(&stats.wakeups, is_woken.into());
    }

    /// Whether a limit of the process's own is near, and what NORMAL lacks to be at high is all that is missing: the balancer gives
    /// it. Below the setting `limit` pressure may begin above high, by `headroom_percent`.
    pub(crate) fn is_own_limit_short(&self) -> bool {
        let (normal, platform) = (self.normal_zone(), self.heap.platform());
        let is_target = platform.tunables().limit.get() == 0;
        let is_told = is_target || normal.free <= normal.marks.high;
        self.budget_room().is_own && is_told && platform.has_balancer_thread()
    }

    /// What a shortage of NORMAL counts as: that of the process's own limit or target, or the pressure of others.
    pub(crate) fn cause_of_shortage(&self) -> Cause {
        let has_limit = self.heap.platform().tunables().limit.get() != 0 || self.budget_room().is_own;
        if has_limit { Cause::Limit } else { Cause::Pressure }
    }

    /// Whether the last reading is old: so much became resident since.
    pub fn wants_reading(&self) -> bool {
        self.heap.reclaim.budget.is_old()
    }

    /// One step of the balancer's, on its thread.
    pub fn balance_zones(&self, turn: &mut Turn) -> Next {
        self.heap.reclaim.node_balancer.step(self, turn)
    }

    /// Whether the balancer has a request that it has not seen yet.
    pub fn is_balancer_asked(&self) -> bool {
        self.heap.reclaim.node_balancer.is_asked()
    }

    /// Whether pressure is to be heard of whatever the heap holds: there is a callback, a reader of events or a page pool.
    pub fn hears_pressure(&self) -> bool {
        self.heap.callbacks.are_there() || self.heap.page_pools.are_there()
    }

    /// When there may be relief, ns; `None`: there is no pressure.
    pub fn relief_due(&self) -> Option<Time> {
        self.heap.reclaim.pressure.relief_due(self.relief_ns())
    }

    /// Whether a cache or a subscriber waits for relief. Else it shows in figures alone.
    pub fn is_relief_awaited(&self) -> bool {
        self.heap.parts().reclaimable().iter().any(|part| part.hears_pressure())
    }

    /// Says that pressure is over, if it is: no event for `relief_ms`, and NORMAL is balanced. Caches may grow again. Where the
    /// balance alone is missing the balancer is asked for it: above low nothing else wakes it, as where a reading shows that less
    /// went than was counted.
    pub fn relieve_if_due(&self) {
        let normal = ZoneClass::Normal as usize;
        let is_balanced = || {
            let is_balanced =
                is_zone_balanced(&self.heap.reclaim.node_balancer.view(self), normal, 0, ZoneList::Normal);
            if !is_balanced && self.heap.platform().has_balancer_thread() {
                self.ask_balancer(true);
            }
            is_balanced
        };
        if self.heap.reclaim.pressure.relieve(self.heap.platform().now(), self.relief_ns(), is_balanced) {
            let stats = self.heap.platform().stats();
            stats::add(&stats.reliefs, 1);
            stats.pressure_level.store(Level::None as u64, Relaxed);
            self.heap.parts().reclaimable().iter().for_each(|part| part.pressure_changed(Level::None));
            // An event that came meanwhile may have been told before the relief: it is told again.
            let level = self.heap.reclaim.pressure.level();
            if level > Level::None {
                stats.pressure_level.store(level as u64, Relaxed);
                self.heap.callbacks.raise(self.heap.platform(), level, Cause::Pressure);
            }
        }
    }

    /// A pressure event was heard: subscribers are told, and caches do not grow until relief, whether anything is released or
    /// not. [`Reclaim::balance_pressure`] then does what follows for the heap.
    pub fn note_pressure(&self, level: Level, cause: Cause) {
        self.heap.page_pools.signal(self.heap.platform(), self.heap.platform().now());
        // The level first: relief that comes meanwhile sees it, and tells it again.
        self.pressure_is(level, self.heap.platform().now());
        self.heap.callbacks.raise(self.heap.platform(), level, cause);
    }

    /// A pressure event: the level rises, if it does, and stays until relief.
    pub(crate) fn pressure_is(&self, level: Level, now: Time) {
        let before = self.heap.reclaim.pressure.raise(level, now);
        let stats = self.heap.platform().stats();
        stats.pressure_heard_at.store(now.0, Relaxed);
        stats.pressure_level.store(level.max(before) as u64, Relaxed);
        if level > before {
            self.heap.parts().reclaimable().iter().for_each(|part| part.pressure_changed(level));
        }
    }

    /// A zone in which caches of the program's lie is short, and they are about to shrink: that is pressure, as any other.
    pub(crate) fn zone_is_short(&self, zone: ZoneClass) {
        if !self.has_evictable(zone) {
            return;
        }
        if self.heap.reclaim.pressure.level() == Level::None {
            self.note_pressure(Level::Some, self.cause_of_shortage());
            // Its thread sees to relief; it may be asleep without a time to wake up.
            if self.heap.platform().has_balancer_thread() {
                self.heap.platform().wake_balancer();
            }
        } else {
            self.pressure_is(Level::Some, self.heap.platform().now());
        }
    }

    /// Has the balancer reclaim a part of what caches hold, as pressure comes from outside; returns what went at once. What is
    /// idle has gone by now, `released`; a program without caches has nothing more to give.
    pub(crate) fn boost(&self, level: Level, released: Bytes) -> Bytes {
        let step = self.victims(level, released);
        if step.is_zero() {
            return Bytes::ZERO;
        }
        if !self.heap.platform().has_balancer_thread() {
            return self.reclaim_boost(step, level);
        }
        stats::add(&self.heap.platform().stats().wake_requests, 1);
        if self.heap.reclaim.node_balancer.boost(self, ZoneClass::Normal, step) {
            stats::add(&self.heap.platform().stats().wakeups, 1);
        }
        Bytes::ZERO
    }

    /// Without a balancer's thread: reclaims `pages` of what caches hold at once; returns how much went.
    fn reclaim_boost(&self, pages: Pages, level: Level) -> Bytes {
        let (is_short, mut left) = (level == Level::Severe, pages.bytes());
        for priority in (if is_short { LAST } else { LAST_BOOSTED }..=FIRST).rev() {
            let before = self.heap.platform().evicted_elsewhere();
            let got = self.run(&Goal { bytes: left, priority, is_short, ..self.goal_of_limit(Kind::Balance) });
            self.note_bytes(Side::Balancer, got);
            let elsewhere = Bytes(self.heap.platform().evicted_elsewhere().saturating_sub(before) as usize);
            left = left.saturating_sub(got.released.max(elsewhere));
            if left.is_zero() {
                break;
            }
        }
        pages.bytes() - left
    }

    /// A request of `order` along `list` found little free, or nothing (`is_short`).
    pub(crate) fn wake_node_balancer(&self, order: u32, list: ZoneList, is_short: bool) {
        if !self.heap.platform().has_balancer_thread() {
            return;
        }
        let stats = self.heap.platform().stats();
        stats::add(&stats.wake_requests, 1);
        if self.heap.reclaim.node_balancer.wake(self, order, list, is_short) {
            stats::add(&stats.wakeups, 1);
            self.heap.platform().wake_balancer();
        }
    }

    /// Whether caches of the program's, in zones of a class, would give up what is in use.
    pub(crate) fn has_evictable(&self, zone: ZoneClass) -> bool {
        self.heap.parts().reclaimable().iter().any(|part| part.has_evictable(zone))
    }

    /// How long a level of pressure, and what it adds to the watermarks, outlast the last event, ns.
    pub(crate) fn relief_ns(&self) -> Nanos {
        self.heap.platform().tunables().relief_ms.ns()
    }

    /// Whether a cache of the program's may take `bytes` more. There must be no pressure, nor have been since the last relief,
    /// and NORMAL must stay above high.
    pub fn may_grow(&self, bytes: usize) -> bool {
        let is_free = || {
            let normal = self.normal_zone();
            normal.managed.is_zero() || normal.free > normal.marks.high + Pages::to_hold(bytes)
        };
        self.is_unpressed() && is_free()
    }

    /// [`Reclaim::may_grow`] of a cache that lies below 4 GiB: the zones there must stay above low too, as far as there are any.
    pub fn may_grow_low32(&self, bytes: usize) -> bool {
        let low32 = self.zones()[ZoneClass::Low32 as usize];
        self.may_grow(bytes) && (low32.managed.is_zero() || low32.free > low32.marks.low + Pages::to_hold(bytes))
    }

    /// Whether there is no pressure, nor was since the last relief, and write-back keeps up: else no cache grows.
    pub(crate) fn is_unpressed(&self) -> bool {
        self.heap.reclaim.pressure.level() == Level::None
            && !self.heap.reclaim.node_balancer.is_congested(ZoneClass::Normal)
    }

    /// Says whether a cache's write-back lags behind what reclaim wants of a class of zones. While it does caches do not grow,
    /// and reclaimers wait for it before they take more of what is in use. The balancer forgets it before it sleeps.
    pub fn set_congested(&self, zone: ZoneClass, is_congested: bool) {
        self.heap.reclaim.node_balancer.set_congested(zone, is_congested);
        if !is_congested {
            self.heap.reclaim.throttle.tell(self.heap.platform());
        }
    }

    /// The budget of NORMAL now.
    pub fn budget_figures(&self) -> BudgetFigures {
        let normal = self.normal_zone();
        let marks = normal.marks;
        BudgetFigures {
            capacity: normal.managed.bytes().0,
            resident: (normal.managed - normal.free).bytes().0,
            free: normal.free.bytes().0,
            min: marks.min.bytes().0,
            low: marks.low.bytes().0,
            high: marks.high.bytes().0,
            level: self.heap.reclaim.pressure.level(),
        }
    }

    /// The control group that has the tightest limit but the hard one ([`Room::group`]).
    pub fn limit_group(&self) -> u64 {
        self.budget_room().group
    }

    /// In a forked child: nothing is known of its limits, and no thread of the parent's is there.
    pub(crate) fn inherit_pressure(&self) {
        self.heap.reclaim.node_balancer.inherit();
        self.heap.reclaim.pressure.inherit();
        let stats = self.heap.platform().stats();
        [&stats.pressure_level, &stats.pressure_heard_at].into_iter().for_each(|figure| figure.store(0, Relaxed));
        self.heap.reclaim.budget.inherit();
        self.heap.pages().events.told_by(&self.normal_zone());
        self.heap.reclaim.throttle.inherit();
        self.heap.pages().hard_limit.inherit();
        self.heap.reclaim.in_hard_limit.store(0, Relaxed);
    }
}
