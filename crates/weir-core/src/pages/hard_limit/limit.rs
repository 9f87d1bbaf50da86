//! The hard limit: what the heap may hold at most (setting `hard_limit`).
//!
//! What is handed out counts in full, touched or not: a program may touch it at any time, when nothing could be refused any more.
//! Free memory counts as far as it is resident. An allocation that would exceed the limit gets [`Short`](crate::pages::Short), as
//! where the system refuses memory, unless memory that is resident already serves it. The heap then reclaims, and tries again.
//!
//! # Threads at once
//!
//! What is about to be taken is *held* first. A thread adds what it wants to `held`, then reads what is charged. It keeps of its
//! hold as much as fits below the limit beside the charge and what others held before. It takes no more than that, and drops the
//! hold only when what it took is charged.
//!
//! The interleaving that this excludes: two threads find the same room, and both take it. The one that adds to `held` second
//! gets the first one's hold as the value before its own. If that hold has been dropped by then, its memory is charged; and
//! the charge is read later. So memory counts once or twice, never not at all, and what all threads take together stays below
//! the limit. Twice may refuse a thread what a moment later would fit: it reclaims, and tries again. The model is
//! `crates/weir-models/tests/pages/hard_limit.rs`.
//!
//! Metadata counts, but is not refused. The arrays that describe memory, about a hundredth of it, are mapped as the heap grows.
//! They may exceed the limit until the next allocation finds less room.
//!
//! Without a limit nothing of this is done, but for one load.

use crate::platform::sync::{AtomicUsize, constructor};
use core::sync::atomic::Ordering::SeqCst;

/// Bytes that count beside what zones and statistics say.
pub struct HardLimit {
    /// Blocks mapped on their own: one in use in full, a retained one as far as it is resident. A block on its way from one to
    /// the other counts as before until the change is over. So it is missing at no time.
    blocks: AtomicUsize,
    /// Held by allocations under way.
    held: AtomicUsize,
}

impl HardLimit {
    constructor! {
        /// Nothing counts yet.
        #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
        pub fn new() -> Self {
            Self { blocks: AtomicUsize::new(0), held: AtomicUsize::new(0) }
        }
    }

    /// Bytes that blocks mapped on their own count.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.load(SeqCst)
    }

    /// A block counts `after` bytes in place of `before`.
    pub(crate) fn recharge(&self, before: usize, after: usize) {
        self.blocks.fetch_add(after.wrapping_sub(before), SeqCst);
    }

    /// Held now. To be read before what is charged.
    pub(crate) fn held(&self) -> usize {
        self.held.load(SeqCst)
    }

    /// Holds `bytes`, or as many of them as there is room for below `limit`; `charged` says what counts already.
    pub(crate) fn hold(&self, bytes: usize, limit: usize, charged: impl FnOnce() -> usize) -> Hold<'_> {
        let wanted = bytes.min(limit);
        let others = self.held.fetch_add(wanted, SeqCst);
        let mut hold = Hold { of: self, bytes: wanted };
        let room = limit.saturating_sub(charged().saturating_add(others));
        hold.cut(wanted.min(room));
        hold
    }

    /// A hold of nothing, where there is no limit.
    pub(crate) fn hold_nothing(&self) -> Hold<'_> {
        Hold { of: self, bytes: 0 }
    }

    /// In a forked child: the threads that held something are not there.
    pub(crate) fn inherit(&self) {
        self.held.store(0, SeqCst);
    }
}

/// Room that an allocation has for itself until what it takes is charged.
pub struct Hold<'a> {
    of: &'a HardLimit,
    bytes: usize,
}

impl Hold<'_> {
    /// How much there is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps `bytes` of it.
    fn cut(&mut self, bytes: usize) {
        let gone = core::mem::replace(&mut self.bytes, bytes) - bytes;
        if gone > 0 {
            // A signal handler of the thread that holds this may have forked, and in the child nothing is held any more. A count
            // that wrapped around would refuse all memory for good.
            let _ = self.of.held.fetch_update(SeqCst, SeqCst, |held| Some(held.saturating_sub(gone)));
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.cut(0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::pages::hard_limit::HardLimit;

    #[test]
    fn holds_do_not_share_room_and_give_it_back() {
        let limit = HardLimit::new();
        let first = limit.hold(100, 250, || 100);
        let second = limit.hold(100, 250, || 100);
        let third = limit.hold(100, 250, || 100);
        assert_eq!((first.bytes(), second.bytes(), third.bytes()), (100, 50, 0));
        drop((first, third));
        assert_eq!((limit.held(), limit.hold(usize::MAX, 250, || 100).bytes()), (50, 100));
        drop(second);
        assert_eq!(limit.held(), 0);
    }

    #[test]
    fn more_charged_than_the_limit_leaves_no_room() {
        let limit = HardLimit::new();
        assert_eq!(limit.hold(1, 250, || 251).bytes(), 0);
        assert_eq!(limit.hold(1, 250, || usize::MAX).bytes(), 0);
        assert_eq!(limit.hold(usize::MAX, usize::MAX, || 1).bytes(), usize::MAX - 1);
        assert_eq!(limit.held(), 0);
    }

    #[test]
    fn a_hold_that_a_fork_took_away_is_given_back_without_harm() {
        let limit = HardLimit::new();
        let hold = limit.hold(100, 250, || 0);
        limit.inherit();
        drop(hold);
        assert_eq!((limit.held(), limit.hold(100, 250, || 0).bytes()), (0, 100));
    }
}
