//! Visits of pools by threads that do not own them, and the end of a pool, which waits for its visitors. The protocol
//! is in `mod.rs`.

use super::sync::{AtomicU32, constructor};
use super::wait::Wait;
use core::sync::atomic::Ordering::SeqCst;

/// Counts one out. There may be none left: a signal handler or a callback of the thread that is counted forked, and in the child
/// all counts begin anew. A count that wrapped around would hold the end of a pool up for good.
fn one_less(count: &AtomicU32) {
    let _ = count.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
}

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
pub struct Departures {
    /// Rises when a visitor has left, while somebody waits.
    left: AtomicU32,
    waiting: AtomicU32,
}

impl Departures {
    constructor! {
        /// Nobody waits.
        #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
        pub fn new() -> Self {
            Self { left: AtomicU32::new(0), waiting: AtomicU32::new(0) }
        }
    }

    /// A visitor leaves; the pool may be gone when this returns.
    pub(crate) fn leave<P: Wait>(&self, platform: &P, visits: &Visits) {
        one_less(&visits.0);
        // A write, so that of this and the waiter's own one comes second and sees what was written before the other.
        if self.waiting.fetch_add(0, SeqCst) > 0 {
            self.left.fetch_add(1, SeqCst);
            platform.wake_all(&self.left);
        }
    }

    /// Waits until no visitor is left of a pool that none can find any more.
    pub(crate) fn wait_for_none<P: Wait>(&self, platform: &P, visits: &Visits) {
        self.waiting.fetch_add(1, SeqCst);
        loop {
            let left = self.left.load(SeqCst);
            if visits.0.load(SeqCst) == 0 {
                break;
            }
            platform.wait_for(&self.left, left, None);
        }
        one_less(&self.waiting);
    }

    /// In a forked child: nobody else waits.
    pub(crate) fn inherit(&self) {
        self.waiting.store(0, SeqCst);
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
    fn a_pool_ends_in_a_child_that_a_handler_forked_in_a_visit_or_in_an_end() {
        let (visits, departures) = (Visits::new(), Departures::new());
        visits.enter();
        departures.waiting.fetch_add(1, SeqCst);
        visits.inherit();
        departures.inherit();
        departures.leave(&Alone, &visits);
        one_less(&departures.waiting);
        departures.wait_for_none(&Alone, &visits);
        assert_eq!((visits.0.load(SeqCst), departures.waiting.load(SeqCst)), (0, 0));
    }
}
