//! Visits of pools by threads that do not own them, and the end of a pool, which waits for its visitors. The protocol
//! is in `mod.rs`.

use super::event_count::EventCount;
use super::sync::{AtomicU32, constructor};
use super::wait::Wait;
use core::sync::atomic::Ordering::SeqCst;

/// Visitors of one pool. They count themselves under the lock of the list that they found the pool in.
pub struct Visits(AtomicU32);

impl Visits {
    constructor! {
        /// No visitors.
        #[allow(clippy::new_without_default, reason = "const, as the part of a pool that it is")]
        pub fn new() -> Self {
            Self(AtomicU32::new(0))
        }
    }

    /// One more, under the lock of the list.
    pub(crate) fn enter(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    /// In a forked child: no visitor is there.
    pub(crate) fn inherit(&self) {
        self.0.store(0, SeqCst);
    }
}

/// Where the ends of pools wait: beside the list, which stays when a pool goes.
pub struct Departures(EventCount);

impl Departures {
    constructor! {
        /// Nobody waits.
        #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
        pub fn new() -> Self {
            Self(EventCount::new())
        }
    }

    /// A visitor leaves; the pool may be gone when this returns.
    pub(crate) fn leave<P: Wait>(&self, platform: &P, visits: &Visits) {
        // None may be left: a signal handler or a callback of this thread forked, and in the child all counts begin anew. A count
        // that wrapped around would hold the end of a pool up for good.
        let _ = visits.0.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
        self.0.tell(platform);
    }

    /// Waits until no visitor is left of a pool that none can find any more.
    pub(crate) fn wait_for_none<P: Wait>(&self, platform: &P, visits: &Visits) {
        let is_over = || visits.0.load(SeqCst) == 0;
        while !is_over() {
            self.0.wait_unless(platform, None, is_over);
        }
    }

    /// In a forked child: nobody else waits.
    pub(crate) fn inherit(&self) {
        self.0.inherit();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Nobody is there to end a wait.
    struct Alone;

    impl Wait for Alone {
        fn wait(&self, _word: &AtomicU32, _expected: u32) {}
        fn wait_for(&self, _word: &AtomicU32, _expected: u32, _ns: Option<u64>) {
            panic!("a wait without an end");
        }
        fn wake(&self, _word: &AtomicU32) {}
        fn held_ranks(&self) -> Option<&AtomicU32> {
            None
        }
    }

    #[test]
    fn a_pool_ends_in_a_child_that_a_handler_forked_in_a_visit() {
        let (visits, departures) = (Visits::new(), Departures::new());
        visits.enter();
        visits.inherit();
        departures.inherit();
        departures.leave(&Alone, &visits);
        departures.wait_for_none(&Alone, &visits);
        assert_eq!(visits.0.load(SeqCst), 0);
    }
}
