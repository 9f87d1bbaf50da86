//! A fork finds the heap whole: every lock is taken in the order of ranks before it, and released after it in both
//! processes. A thread that is alone in the heap takes none: locks lie in some 30 pages, which parent and child would copy.

use core::sync::atomic::Ordering::Relaxed;

use super::Heap;
use super::view::view;
use crate::platform::lock::{ALONE, FROZEN, RankTurn, SKIPPED, SKIPPED_COUNT};
use crate::platform::{Platform, rank};

view! {
    /// Calls before and after a fork.
    pub struct Fork;
    /// A fork of the process.
    fn fork;
}

impl<P: Platform> Fork<'_, P> {
    /// Takes every lock in rank order, so that a fork's child finds the heap whole; none if the thread is alone in the heap.
    ///
    /// Not if the caller holds one already: then it is a signal handler that interrupted the heap at work, and would wait for
    /// itself. The work that it interrupted goes on in the child as in the parent, and lets its lock go there too. Locks that
    /// other threads hold stay held in such a child.
    pub fn freeze(&self) {
        let p = self.heap.platform();
        if let Some(held) = p.held_ranks() {
            let before = held.load(Relaxed);
            if before != 0 {
                // Perhaps it interrupted a fork: that one's thaw and this one's are told apart by the count.
                return held.store(before + SKIPPED, Relaxed);
            }
            if p.is_alone() {
                return held.store(FROZEN | ALONE, Relaxed);
            }
            held.store(FROZEN, Relaxed);
        }
        (0..rank::COUNT).for_each(|rank| self.pass(&RankTurn::takes(p, rank)));
    }

    /// Passes all locks there are to the turn of a rank.
    fn pass(&self, turn: &RankTurn<'_, P>) {
        self.heap.platform().freeze_evictable_caches(turn);
        self.heap.parts().frozen().iter().for_each(|part| part.freeze(turn));
        self.heap.reclaim.windows.freeze(turn);
        self.heap.profile.freeze(turn);
    }

    /// Whether the caller's last [`Fork::freeze`] took nothing, as it found the thread holding something.
    pub fn is_nested(&self) -> bool {
        self.heap.platform().held_ranks().is_some_and(|held| held.load(Relaxed) & SKIPPED_COUNT != 0)
    }

    /// Whether that one, which took nothing, came in the middle of another fork of this thread: a signal handler's.
    pub fn is_in_fork(&self) -> bool {
        self.is_nested() && self.heap.platform().held_ranks().is_some_and(|held| held.load(Relaxed) & FROZEN != 0)
    }

    /// Whether the caller's last [`Fork::freeze`] took nothing, as the thread is alone in the heap.
    pub fn is_alone(&self) -> bool {
        self.heap.platform().held_ranks().is_some_and(|held| held.load(Relaxed) & ALONE != 0)
    }

    /// Undoes [`Fork::freeze`], in the parent or in the child; whether there was something to undo.
    ///
    /// # Safety
    /// Follows [`Fork::freeze`] on the same thread (or its copy in the child).
    pub unsafe fn thaw(&self) -> bool {
        let p = self.heap.platform();
        if let Some(held) = p.held_ranks() {
            let before = held.load(Relaxed);
            if before & SKIPPED_COUNT != 0 {
                held.store(before - SKIPPED, Relaxed);
                return false;
            }
            if before & ALONE != 0 {
                // In this order: a handler that forks once the others go on finds that it has to take the locks.
                held.store(0, Relaxed);
                p.is_not_alone();
                return true;
            }
        }
        for rank in (0..rank::COUNT).rev() {
            // SAFETY: the caller promises that `freeze` came before, on this thread or its copy. That call took all locks of this
            // rank, without guards, as it found that the thread held none. (Else this function has returned above.)
            self.pass(&unsafe { RankTurn::gives_back(p, rank) });
        }
        if let Some(held) = p.held_ranks() {
            held.store(0, Relaxed);
        }
        true
    }

    /// [`Fork::thaw`] in a forked child, and the end of what the parent's other threads had begun.
    ///
    /// # Safety
    /// Follows [`Fork::freeze`] of the thread that this one is the copy of; the caller is the child's only thread.
    pub unsafe fn thaw_child(&self) {
        self.heap.pages().inherit_zones();
        self.heap.figures().leave_parents_frees();
        // SAFETY: the caller promises that this thread is the copy of the one that froze the heap.
        if unsafe { self.thaw() } {
            self.inherit();
        }
    }

    /// In a forked child, when the locks are given back: ends what the parent's other threads had begun.
    pub fn inherit(&self) {
        self.heap.callbacks.inherit(self.heap.platform());
        self.heap.page_pools.inherit(self.heap.platform());
        self.heap.caches.inherit();
        self.heap.mapped().inherit();
        self.heap.reclaim().inherit_pressure();
    }
}
