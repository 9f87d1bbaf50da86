//! When reclaim runs, and towards which goal: at the end of a calm window, at rest, under pressure, when the program asks for
//! it, when an allocation is short. And what is registered with it.
//!
//! What calm windows released too early makes them longer ([`crate::policy::refault`]). Severe pressure costs a program its
//! caches, so it happens once in `severe_interval_ms` at most; a severe event before that is answered as any other.

use super::Heap;
use crate::base::cause::Cause;
use crate::base::level::Level;
use crate::base::units::PAGE;
use crate::pages::Short;
use crate::platform::Platform;
use crate::policy::deferred::DEF_PRIORITY;
use crate::reclaim::balancer::IDLE_WINDOWS;
use crate::reclaim::{Goal, Kind, Reclaimable, Reclaimed, run_down};
use crate::telemetry::stats;

/// Slow-path calls between two looks at the clock where there is no background thread, or it may have to be woken.
const CALLS_PER_LOOK: u32 = 256;

impl<P: Platform> Heap<P> {
    /// Calls `f` with all that can be reclaimed. Whoever adds a mechanism adds a line here.
    pub(super) fn with_reclaimables<T>(&self, f: impl FnOnce(&[&dyn Reclaimable]) -> T) -> T {
        f(&[self.pages(), &self.caches, &self.mapped(), &self.watch(), &self.callbacks.on(self.platform())])
    }

    /// Works towards a goal; nothing while reports are off, unless an allocation is short.
    fn reclaim(&self, kind: Kind, cause: Cause, now: u64, bytes: usize) -> Reclaimed {
        if !self.pages().is_reporting() {
            return Reclaimed::default();
        }
        let goal = Goal { kind, cause, now, turn: self.balancer.next_turn(), bytes, priority: DEF_PRIORITY };
        self.with_reclaimables(|all| run_down(&goal, kind.last_priority(), all, |_| false))
    }

    // ---- while the program allocates ---------------------------------------------------------------------------

    /// Tries `attempt`, which found no pages, again and again while reclaim brings some.
    #[cold]
    pub(super) fn reclaim_for<T>(
        &self,
        bytes: usize,
        mut attempt: impl FnMut() -> Result<T, Short>,
    ) -> Result<T, Short> {
        stats::add(&self.platform().stats().direct_reclaims, 1);
        let turn = self.balancer.next_turn();
        let (kind, now) = (Kind::Shortage, self.pages().events.clock());
        let goal = Goal { kind, cause: Cause::Limit, now, turn, bytes, priority: DEF_PRIORITY };
        let mut found = Err(Short);
        self.with_reclaimables(|all| {
            run_down(&goal, kind.last_priority(), all, |_| {
                found = attempt();
                found.is_ok()
            })
        });
        found.or_else(|Short| attempt())
    }

    /// To be called at the end of each slow path, under no lock.
    #[inline]
    pub(super) fn slow_path_ends(&self) {
        let fresh = self.pages().events.take_fresh();
        if fresh > 0 {
            self.make_room(Kind::Room, fresh);
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
        if !self.balancer.is_window_over(self.platform(), now) {
            return;
        }
        self.balance_calm();
        let (level, cause) = self.platform().poll_pressure();
        self.relieve_if_due();
        if level > Level::None {
            self.note_pressure(level, cause);
            stats::add(&self.platform().stats().pressure_events, 1);
            self.balance_pressure(level, cause);
            self.platform().stats().note_latency(self.platform().now() - now);
        }
    }

    // ---- beside the program ------------------------------------------------------------------------------------

    /// Lets the next free wake the balancer again, where waking it led to nothing.
    pub fn forget_notice(&self) {
        self.pages().events.seen();
    }

    /// Length of a calm window now, ns.
    pub fn calm_window(&self) -> u64 {
        self.balancer.window(self.platform())
    }

    /// Ends a calm window. Returns whether another is wanted soon: `false` once nothing moves any more.
    pub fn balance_calm(&self) -> bool {
        self.pages().events.seen();
        let now = self.pages().events.tick(self.platform());
        if !self.pages().is_reporting() {
            return false;
        }
        self.balancer.learn(self.platform());
        let (quiet, quiet_before) = self.balancer.end_window(self.activity());
        let kind = Kind::Calm { quiet, drain: quiet && quiet_before == 0 };
        let moved = !self.reclaim(kind, Cause::Idle, now, usize::MAX).is_nothing();
        if moved || !quiet {
            self.watch().look_again();
        }
        self.with_reclaimables(|all| all.iter().for_each(|part| part.end_window()));
        self.publish();
        moved || !quiet || self.watch().has_looks_left() || self.balancer.quiet_windows() < IDLE_WINDOWS
    }

    /// For a heap that has come to rest and whose memory is limited; returns bytes.
    pub fn balance_rest(&self) -> usize {
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
        let mut kind = Kind::Pressure;
        if level == Level::Severe {
            // Until it is this late, and memory has recovered, no bucket is made.
            self.caches.stop_shells(now + self.platform().tunables().severe_interval_ms.get() * 1_000_000);
            if self.balancer.may_empty_caches(self.platform(), now) {
                kind = Kind::Severe;
            }
        }
        let bytes = self.reclaim(kind, cause, now, usize::MAX).released;
        self.publish();
        bytes
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
        let now = self.pages().events.tick(self.platform());
        self.run_finalizers();
        let mut bytes = self.reclaim(Kind::Asked, Cause::Asked, now, usize::MAX).released;
        // Slabs of objects with finalizers may have become empty by that.
        if self.run_finalizers() > 0 {
            bytes += self.reclaim(Kind::Asked, Cause::Asked, now, usize::MAX).released;
        }
        self.publish();
        bytes
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
