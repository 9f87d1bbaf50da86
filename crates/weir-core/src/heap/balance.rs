//! When reclaim runs, and towards which goal: at the end of a calm window, at rest, under pressure, when the program asks for
//! it, when an allocation is short. And what is registered with it.
//!
//! What calm windows released too early makes them keep more ([`crate::policy::refault`]). Severe pressure costs a program its
//! caches, so it happens once in `severe_interval_ms` at most; a severe event before that is answered as any other.

use super::Heap;
use crate::base::cause::Cause;
use crate::base::level::Level;
use crate::base::units::PAGE;
use crate::platform::Platform;
use crate::reclaim::node_balancer::Scanned;
use crate::reclaim::windows::IDLE_WINDOWS;
use crate::reclaim::{Ended, Goal, Kind, Reclaimable, Reclaimed, Side, run};
use crate::telemetry::stats;

/// Slow-path calls between two looks at the clock where there is no background thread, or it may have to be woken.
const CALLS_PER_LOOK: u32 = 256;

impl<P: Platform> Heap<P> {
    /// Calls `f` with all that can be reclaimed. Whoever adds a mechanism adds a line here.
    pub(super) fn with_reclaimables<T>(&self, f: impl FnOnce(&[&dyn Reclaimable]) -> T) -> T {
        let (pools, callbacks) = (self.pools(), self.callbacks.on(self.platform(), self.budget_room()));
        f(&[self.pages(), &self.caches, &self.mapped(), &self.watch(), &pools, &callbacks])
    }

    /// Works towards a goal; nothing while reports are off, unless an allocation is short.
    pub(super) fn reclaim(&self, kind: Kind, cause: Cause, now: u64, bytes: usize) -> Reclaimed {
        if !self.pages().is_reporting() {
            return Reclaimed::default();
        }
        let goal = Goal { bytes, ..Goal::new(kind, cause, now, self.windows.next_turn()) };
        self.with_reclaimables(|all| run(&goal, all, |_| false))
    }

    /// Works towards the goal that `change` makes of that of `kind`; nothing while reports are off.
    pub(super) fn reclaim_by(&self, change: impl FnOnce(Goal) -> Goal, kind: Kind) -> Reclaimed {
        if !self.pages().is_reporting() {
            return Reclaimed::default();
        }
        let cause = if self.platform().tunables().limit.get() != 0 { Cause::Limit } else { Cause::Pressure };
        let goal = change(Goal::new(kind, cause, self.pages().events.clock(), self.windows.next_turn()));
        self.with_reclaimables(|all| run(&goal, all, |_| false))
    }

    /// Counts what one side scanned.
    pub(super) fn note_scan(&self, side: Side, pages: Scanned) {
        let stats = self.platform().stats();
        stats::add(&stats.scanned_pages[side as usize], pages.scanned as u64);
        stats::add(&stats.reclaimed_pages[side as usize], pages.reclaimed as u64);
    }

    // ---- while the program allocates ---------------------------------------------------------------------------

    /// To be called at the end of each slow path, under no lock.
    #[inline]
    pub(super) fn slow_path_ends(&self) {
        let fresh = self.pages().events.take_fresh();
        if fresh > 0 {
            self.make_room(Kind::Room, fresh);
            self.note_resident(fresh);
        }
        if !self.platform().has_balancer_thread() {
            if self.pages().events.slow_path(CALLS_PER_LOOK) {
                self.end_window_if_due();
            }
        } else if self.huge_pages.wakes() && self.pages().events.slow_path(CALLS_PER_LOOK) {
            self.watch().wake_for_looks();
        }
    }

    /// Releases idle memory for `pages` that become resident elsewhere. Without it a heap whose sizes change would hold what
    /// it had before and what it has now.
    #[cold]
    pub(super) fn make_room(&self, kind: Kind, pages: usize) {
        if pages > 0 {
            self.reclaim(kind, Cause::Idle, self.pages().events.clock(), pages * PAGE);
        }
    }

    /// Without a background thread, slow paths end the window when it is due.
    #[cold]
    fn end_window_if_due(&self) {
        let now = self.platform().now();
        if !self.windows.is_window_over(self.platform(), now) {
            return;
        }
        self.balance_calm();
        let (level, cause) = self.platform().poll_pressure();
        if level > Level::None {
            stats::add(&self.platform().stats().pressure_events, 1);
            self.note_pressure(level, cause);
            self.balance_pressure(level, cause);
            self.platform().stats().note_latency(self.platform().now() - now);
        }
    }

    // ---- beside the program ------------------------------------------------------------------------------------

    /// Lets the next free wake the balancer again, where waking it led to nothing.
    pub fn forget_notice(&self) {
        self.pages().events.seen();
        self.node_balancer.forget_thread();
        self.throttle.release(self.platform());
    }

    /// Length of a calm window now, ns.
    pub fn calm_window(&self) -> u64 {
        self.windows.window(self.platform())
    }

    /// Ends a calm window. Returns whether another is wanted soon: `false` once nothing moves any more.
    pub fn balance_calm(&self) -> bool {
        self.pages().events.seen();
        let now = self.pages().events.tick(self.platform());
        self.relieve_if_due();
        if !self.pages().is_reporting() {
            return false;
        }
        self.windows.learn(self.platform());
        let (quiet, quiet_before) = self.windows.end_window(self.activity());
        let windows = self.windows.hold(self.platform()).windows;
        let ended = Ended { quiet, drain: quiet && quiet_before == 0, windows };
        let moved = !self.reclaim(Kind::Calm(ended), Cause::Idle, now, usize::MAX).is_nothing();
        if moved || !quiet {
            self.watch().look_again();
        }
        self.with_reclaimables(|all| all.iter().for_each(|part| part.end_window(ended)));
        self.publish();
        // What was used in the last windows goes when as many quiet ones have passed.
        let least = IDLE_WINDOWS.max(windows as u32 + 1);
        moved || !quiet || self.watch().has_looks_left() || self.windows.quiet_windows() < least
    }

    /// For a heap that has come to rest and whose memory is limited; returns bytes.
    pub fn balance_rest(&self) -> usize {
        if !self.pages().is_reporting() {
            return 0;
        }
        let bytes = self.reclaim(Kind::Rest, Cause::Idle, self.pages().events.clock(), usize::MAX).released;
        self.publish();
        bytes
    }

    /// Answers pressure at once; returns the bytes released.
    pub fn balance_pressure(&self, level: Level, cause: Cause) -> usize {
        let now = self.pages().events.tick(self.platform());
        if level == Level::None || !self.pages().is_reporting() {
            return 0;
        }
        self.pressure_is(level, now);
        let mut kind = Kind::Pressure;
        if level == Level::Severe {
            // Until it is this late, and memory has recovered, no bucket is made.
            self.caches.stop_shells(now + self.platform().tunables().severe_interval_ms.get() * 1_000_000);
            if self.windows.may_empty_caches(self.platform(), now) {
                kind = Kind::Severe;
            }
        }
        let got = self.reclaim(kind, cause, now, usize::MAX);
        self.note_bytes(Side::Balancer, got);
        let of_caches = self.boost(level);
        self.publish();
        got.released + of_caches
    }

    /// What is free of one node is released; returns bytes. For that node's worker
    /// ([`crate::platform::Workers::wake_node_worker`]).
    pub fn balance_node(&self, node: usize, cause: Cause, severe: bool) -> usize {
        if node >= self.pages().nodes.count() {
            return 0;
        }
        let now = self.pages().events.clock();
        self.reclaim(Kind::Node { node, severe }, cause, now, usize::MAX).released
    }

    /// Everything idle is released now, whatever it costs to get it again: `malloc_trim`. Returns bytes.
    pub fn trim(&self) -> usize {
        if !self.pages().is_reporting() {
            return 0;
        }
        self.run_finalizers();
        let mut bytes = self.drain();
        // Slabs of objects with finalizers may have become empty by that.
        if self.run_finalizers() > 0 {
            bytes += self.drain();
        }
        bytes
    }

    /// The same for a thread that may run none of the program's code: objects that have finalizers are left to the thread
    /// that calls these.
    pub fn drain(&self) -> usize {
        if !self.pages().is_reporting() {
            return 0;
        }
        let now = self.pages().events.tick(self.platform());
        let bytes = self.reclaim(Kind::Asked, Cause::Asked, now, usize::MAX).released;
        self.publish();
        bytes
    }

    /// Makes the heap ask for huge pages as the tunable `huge_heap` says. Of calls at once the last value holds.
    pub fn follow_huge_heap(&self) {
        self.pages().follow_huge_heap();
    }

    /// The program has switched huge pages off for itself.
    pub fn forget_huge(&self) {
        self.watch().forget_huge();
    }

    /// Switches reports on or off, as the tunable `report` does; but when this returns, nothing is in flight that was
    /// begun before it was switched off, and nothing will be: all that is free can be allocated, and only what was
    /// taken below is marked so.
    pub fn set_reporting(&self, on: bool) {
        self.platform().tunables().report.set(on.into());
        if on {
            self.pages().events.freed(self.platform(), usize::MAX / 2);
        } else {
            self.pages().pass_batches();
        }
    }
}
