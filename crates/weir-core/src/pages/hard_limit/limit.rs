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

use crate::base::units::Bytes;
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
    pub(crate) fn blocks(&self) -> Bytes {
        Bytes(self.blocks.load(SeqCst))
    }

    /// A block counts `after` in place of `before`.
    pub(crate) fn recharge(&self, before: Bytes, after: Bytes) {
        self.blocks.fetch_add(after.0.wrapping_sub(before.0), SeqCst);
    }

    /// Held now. To be read before what is charged.
    pub(crate) fn held(&self) -> Bytes {
        Bytes(self.held.load(SeqCst))
    }

    /// Holds `bytes`, or as many of them as there is room for below `limit`; `charged` says what counts already.
    pub(crate) fn hold(&self, bytes: Bytes, limit: Bytes, charged: impl FnOnce() -> Bytes) -> Hold<'_> {
        let wanted = bytes.min(limit);
        let others = Bytes(self.held.fetch_add(wanted.0, SeqCst));
        let mut hold = Hold { of: self, bytes: wanted };
        let room = limit.saturating_sub(charged().saturating_add(others));
        hold.cut(wanted.min(room));
        hold
    }

    /// A hold of nothing, where there is no limit.
    pub(crate) fn hold_nothing(&self) -> Hold<'_> {
        Hold { of: self, bytes: Bytes::ZERO }
    }

    /// In a forked child: the threads that held something are not there.
    pub(crate) fn inherit(&self) {
        self.held.store(0, SeqCst);
    }
}

/// Room that an allocation has for itself until what it takes is charged.
pub struct Hold<'a> {
    of: &'a HardLimit,
    bytes: Bytes,
}

impl Hold<'_> {
    /// How much there is.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Keeps `bytes` of it.
    fn cut(&mut self, bytes: Bytes) {
        let gone = core::mem::replace(&mut self.bytes, bytes) - bytes;
        if !gone.is_zero() {
            // A signal handler of the thread that holds this may have forked, and in the child nothing is held any more. A count
            // that wrapped around would refuse all memory for good.
            let _ = self.of.held.fetch_update(SeqCst, SeqCst, |held| Some(held.saturating_sub(gone.0)));
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.cut(Bytes::ZERO);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Bytes, HardLimit};

    const ALL: Bytes = Bytes(100);
    const LIMIT: Bytes = Bytes(250);

    #[test]
    fn holds_do_not_share_room_and_give_it_back() {
        let limit = HardLimit::new();
        let first = limit.hold(ALL, LIMIT, || ALL);
        let second = limit.hold(ALL, LIMIT, || ALL);
        let third = limit.hold(ALL, LIMIT, || ALL);
        assert_eq!((first.bytes().0, second.bytes().0, third.bytes().0), (100, 50, 0));
        drop((first, third));
        assert_eq!((limit.held(), limit.hold(Bytes::MAX, LIMIT, || ALL).bytes()), (Bytes(50), ALL));
        drop(second);
        assert!(limit.held().is_zero());
    }

    #[test]
    fn more_charged_than_the_limit_leaves_no_room() {
        let limit = HardLimit::new();
        assert!(limit.hold(Bytes(1), LIMIT, || Bytes(251)).bytes().is_zero());
        assert!(limit.hold(Bytes(1), LIMIT, || Bytes::MAX).bytes().is_zero());
        assert_eq!(limit.hold(Bytes::MAX, Bytes::MAX, || Bytes(1)).bytes(), Bytes(usize::MAX - 1));
        assert!(limit.held().is_zero());
    }

    #[test]
    fn a_hold_that_a_fork_took_away_is_given_back_without_harm() {
        let limit = HardLimit::new();
        let hold = limit.hold(ALL, LIMIT, || Bytes::ZERO);
        limit.inherit();
        drop(hold);
        assert_eq!((limit.held(), limit.hold(ALL, LIMIT, || Bytes::ZERO).bytes()), (Bytes::ZERO, ALL));
    }
}
