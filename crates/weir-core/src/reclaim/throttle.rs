//! Throttled allocations: threads that wait for the balancer, as very little is free and it makes progress.
//!
//! A thread reads the epoch, then whether it still has to wait, then sleeps while the epoch is that one. The balancer first does
//! what ends the wait (it goes to sleep itself, or reclaims), then raises the epoch, then wakes. The interleaving that this
//! excludes: a thread sees the balancer awake. The balancer goes to sleep and wakes all waiters. Then the thread begins to wait
//! for a balancer that sleeps. The thread finds another epoch, and so does not wait.

use crate::base::time::Nanos;

use super::sync::{AtomicU32, constructor};
use super::wait::Wait;
use core::sync::atomic::Ordering::SeqCst;

/// See the module.
pub struct Throttle {
    epoch: AtomicU32,
    waiters: AtomicU32,
}

impl Throttle {
    constructor! {
        /// None waits.
        #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
        pub fn new() -> Self {
            Self { epoch: AtomicU32::new(0), waiters: AtomicU32::new(0) }
        }
    }

    /// Waits once, unless `is_over`: until the balancer lets the waiters go, for `time` at most, or for no reason. The caller
    /// looks again, a bounded number of times.
    pub(crate) fn wait<P: Wait>(&self, platform: &P, time: Nanos, is_over: impl Fn() -> bool) {
        let epoch = self.epoch.load(SeqCst);
        if is_over() {
            return;
        }
        self.waiters.fetch_add(1, SeqCst);
        platform.wait_for(&self.epoch, epoch, Some(time.0));
        // In a child that a signal handler forked meanwhile none is counted any more.
        let _ = self.waiters.fetch_update(SeqCst, SeqCst, |waiters| waiters.checked_sub(1));
    }

    /// Lets all waiters look again. By the balancer, when it has made progress, and when it goes to sleep.
    pub(crate) fn release<P: Wait>(&self, platform: &P) {
        self.epoch.fetch_add(1, SeqCst);
        // A write, so that of this and a waiter's own one comes second and sees what was written before the other.
        if self.waiters.fetch_add(0, SeqCst) > 0 {
            platform.wake_all(&self.epoch);
        }
    }

    /// In a forked child: the waiters are not there.
    pub(crate) fn inherit(&self) {
        self.waiters.store(0, SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::platform::sync::AtomicU32;

    /// A signal handler forks while the thread waits.
    struct ForksInWait<'a>(&'a Throttle);

    impl Wait for ForksInWait<'_> {
        fn wait(&self, _word: &AtomicU32, _expected: u32) {}
        fn wake(&self, _word: &AtomicU32) {}
        fn wait_for(&self, _word: &AtomicU32, _expected: u32, _ns: Option<u64>) {
            self.0.inherit();
        }
        fn held_ranks(&self) -> Option<&AtomicU32> {
            None
        }
    }

    /// The balancer releases while the thread waits.
    struct ReleasesInWait<'a>(&'a Throttle, AtomicU32);

    impl Wait for ReleasesInWait<'_> {
        fn wait(&self, _word: &AtomicU32, _expected: u32) {}
        fn wake(&self, _word: &AtomicU32) {
            self.1.fetch_add(1, SeqCst);
        }
        fn wait_for(&self, word: &AtomicU32, expected: u32, _ns: Option<u64>) {
            self.0.release(self);
            assert_ne!(word.load(SeqCst), expected, "what waits is let go");
        }
        fn held_ranks(&self) -> Option<&AtomicU32> {
            None
        }
    }

    #[test]
    fn a_release_wakes_who_waits_and_makes_no_call_for_nobody() {
        let throttle = Throttle::new();
        let platform = ReleasesInWait(&throttle, AtomicU32::new(0));
        throttle.release(&platform);
        assert_eq!(platform.1.load(SeqCst), 0);
        throttle.wait(&platform, Nanos(1), || false);
        assert_eq!(platform.1.load(SeqCst), 1);
        throttle.release(&platform);
        assert_eq!(platform.1.load(SeqCst), 1);
    }

    #[test]
    fn a_fork_while_a_thread_waits_leaves_no_waiter() {
        let throttle = Throttle::new();
        throttle.wait(&ForksInWait(&throttle), Nanos(1), || false);
        assert_eq!(throttle.waiters.load(SeqCst), 0);
    }
}
