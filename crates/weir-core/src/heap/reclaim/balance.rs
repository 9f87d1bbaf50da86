//! When reclaim runs, and towards which goal: at the end of a calm window, at rest, under pressure, when the program asks for
//! it.
//!
//! What calm windows released too early makes them keep more ([`crate::policy::refault`]). Severe pressure costs a program its
//! caches, so it happens once in `severe_interval_ms` at most; a severe event before that is answered as any other.

use super::Reclaim;
use crate::base::cause::Cause;
use crate::base::level::Level;
use crate::base::time::Nanos;
use crate::base::units::{Bytes, Pages};
use crate::platform::Platform;
use crate::reclaim::node_balancer::Scanned;
use crate::reclaim::windows::IDLE_WINDOWS;
use crate::reclaim::{Ended, Goal, Kind, Reclaimable, Reclaimed, Side, Step, run};
use crate::telemetry::stats;

impl<P: Platform> Reclaim<'_, P> {
    /// A goal of `kind` that begins now, on behalf of `cause`.
    pub(crate) fn goal(&self, kind: Kind, cause: Cause) -> Goal {
        Goal::new(kind, cause, self.heap.pages().events.clock(), self.heap.reclaim.windows.next_turn())
    }

    /// A goal of `kind` that the process's own limit causes, or the pressure of others.
    pub(crate) fn goal_of_limit(&self, kind: Kind) -> Goal {
        self.goal(kind, self.cause_of_shortage())
    }

    /// Works towards a goal; nothing while reports are off.
    pub(crate) fn run(&self, goal: &Goal) -> Reclaimed {
        if !self.heap.pages().is_reporting() {
            return Reclaimed::default();
        }
        run(goal, &self.heap.parts().reclaimable(), |_| false)
    }

    /// Counts what one side scanned.
    pub(crate) fn note_scan(&self, side: Side, pages: Scanned) {
        let stats = self.heap.platform().stats();
        stats::add(&stats.scanned_pages[side as usize], pages.scanned.0 as u64);
        stats::add(&stats.reclaimed_pages[side as usize], pages.reclaimed.0 as u64);
    }

    /// Counts what one side reclaimed.
    pub(crate) fn note_bytes(&self, side: Side, got: Reclaimed) {
        let [scanned, reclaimed] = [got.scanned, got.released].map(Bytes::pages_up);
        self.note_scan(side, Scanned { scanned, reclaimed, elsewhere: Pages::ZERO });
    }

    /// Has the next slow path tell that the heap has grown: in a forked child, which has what its parent had.
    pub fn look_at_growth(&self) {
        self.heap.pages().events.look_at_growth();
    }

    /// Lets the next free wake the balancer again, where waking it led to nothing.
    pub fn forget_notice(&self) {
        self.heap.pages().events.seen();
        self.heap.reclaim.node_balancer.forget_thread();
        self.heap.reclaim.throttle.tell(self.heap.platform());
    }

    /// Length of a calm window now, ns.
    pub fn calm_window(&self) -> Nanos {
        self.heap.reclaim.windows.window(self.heap.platform())
    }

    /// Ends a calm window. Returns whether another is wanted soon: `false` once nothing moves any more.
    pub fn balance_calm(&self) -> bool {
        self.heap.pages().events.seen();
        self.heap.pages().events.tick(self.heap.platform());
        self.relieve_if_due();
        if !self.heap.pages().is_reporting() {
            return false;
        }
        self.heap.reclaim.windows.learn(self.heap.platform());
        let (quiet, quiet_before) = self.heap.reclaim.windows.end_window(self.heap.figures().activity());
        let windows = self.heap.reclaim.windows.hold(self.heap.platform()).windows;
        let ended = Ended { quiet, first_quiet: quiet && quiet_before == 0, windows };
        let kind = if ended.first_quiet { Kind::FirstQuiet } else { Kind::Calm };
        let moved = !self.run(&Goal { ended: Some(ended), ..self.goal(kind, Cause::Idle) }).is_nothing();
        if moved || !quiet {
            self.heap.watch().look_again();
        }
        self.heap.parts().reclaimable().iter().for_each(|part| part.end_window(ended));
        self.heap.figures().publish();
        // What was used in the last windows goes when as many quiet ones have passed.
        let least = IDLE_WINDOWS.max(windows as u32 + 1);
        let watch = self.heap.watch();
        let has_more = watch.has_looks_left() || watch.is_collapsing() || self.heap.merger().is_waiting();
        moved || !quiet || has_more || self.heap.reclaim.windows.quiet_windows() < least
    }

    /// Has huge pages put behind what is full and still, before a calm window ends. For the background thread: it takes
    /// milliseconds.
    pub fn collapse_still(&self) {
        if self.heap.pages().is_reporting() {
            self.heap.watch().collapse_still();
        }
    }

    /// For a heap that has come to rest and whose memory is limited; returns bytes.
    pub fn balance_rest(&self) -> usize {
        if !self.heap.pages().is_reporting() {
            return 0;
        }
        let bytes = self.run(&self.goal(Kind::Rest, Cause::Idle)).released.0;
        self.heap.figures().publish();
        bytes
    }

    /// Answers pressure at once; returns the bytes released.
    pub fn balance_pressure(&self, level: Level, cause: Cause) -> usize {
        let now = self.heap.pages().events.tick(self.heap.platform());
        if level == Level::None || !self.heap.pages().is_reporting() {
            return 0;
        }
        self.pressure_is(level, now);
        // As of the reading: what is idle may be enough.
        let is_told = cause == Cause::Limit && self.is_own_limit_short();
        let mut kind = Kind::Pressure;
        if level == Level::Severe {
            // Until it is this late, and memory has recovered, no bucket is made.
            self.heap.caches.stop_shells(now + self.heap.platform().tunables().severe_interval_ms.ns());
            if self.heap.reclaim.windows.may_empty_caches(self.heap.platform(), now) {
                kind = Kind::Severe;
            }
        }
        let got = self.run(&self.goal(kind, cause));
        self.note_bytes(Side::Balancer, got);
        let of_caches = if is_told {
            self.ask_balancer(true);
            0
        } else {
            self.boost(level, got.released).0
        };
        self.heap.figures().publish();
        got.released.0 + of_caches
    }

    /// Answers a sign of pressure while there is plenty of memory ([`Reclaim::has_plenty`]): what is idle goes, and nothing that is
    /// in use. Returns the bytes released.
    pub fn balance_stall(&self, cause: Cause) -> usize {
        let now = self.heap.pages().events.tick(self.heap.platform());
        if !self.heap.pages().is_reporting() {
            return 0;
        }
        self.heap.page_pools.signal(self.heap.platform(), now);
        let got = self.run(&self.goal(Kind::Pressure, cause));
        self.note_bytes(Side::Balancer, got);
        self.heap.figures().publish();
        got.released.0
    }

    /// Releases the free pages of the NUMA node that `node` is a part of; returns bytes. For that NUMA node's worker
    /// ([`crate::platform::Workers::wake_node_worker`]).
    pub fn balance_node(&self, node: usize, cause: Cause, severe: bool) -> usize {
        if node >= self.heap.pages().nodes.count() {
            return 0;
        }
        let kind = if severe { Kind::SevereNode } else { Kind::Node };
        self.run(&Goal { node: Some(node), ..self.goal(kind, cause) }).released.0
    }

    /// [`Heap::purge`](crate::heap::Heap::purge) for a thread that may run none of the program's code: objects that have finalizers are left to the thread
    /// that calls these.
    pub fn purge(&self) -> usize {
        if !self.heap.pages().is_reporting() {
            return 0;
        }
        self.heap.pages().events.tick(self.heap.platform());
        let bytes = self.run(&self.goal(Kind::Purge, Cause::Asked)).released.0;
        self.heap.figures().publish();
        bytes
    }

    /// Bytes that merging would release of what is not merged yet, as the tunable `merge` has it: a dry run.
    pub fn mergeable(&self) -> usize {
        self.heap.merger().would_release()
    }

    /// Makes the heap ask for huge pages as the tunable `huge_heap` says. Of calls at once the last value holds.
    pub fn follow_huge_heap(&self) {
        self.heap.pages().follow_huge_heap();
    }

    /// The program has switched huge pages off for itself.
    pub fn forget_huge(&self) {
        self.heap.watch().forget_huge();
    }

    /// Has frees be checked, or no more, as the tunable `check` says: CPUs' buckets and depots are emptied. That is no release:
    /// it happens also while reports are off.
    pub fn follow_check(&self) {
        let goal = self.goal(Kind::Purge, Cause::Asked);
        for step in [Step::Buckets, Step::StaleCaches] {
            self.heap.caches.scan(step, &goal);
        }
    }

    /// Switches reports on or off, as the tunable `report` does. But when this returns, nothing is in flight that was
    /// begun before it was switched off, and nothing will be. All that is free can be allocated, and only what was
    /// taken below is marked so.
    pub fn set_reporting(&self, on: bool) {
        self.heap.platform().tunables().report.set(on.into());
        if on {
            self.heap.pages().events.freed(self.heap.platform(), Bytes::MAX / 2);
        } else {
            self.heap.pages().pass_batches();
        }
    }
}
