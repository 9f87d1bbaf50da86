//! A count of events, on which threads sleep until there is one more.
//!
//! A thread reads the count, then whether it still has to wait, then counts itself as a sleeper, and sleeps while the count is
//! that one. Who ends the wait first does what ends it, then raises the count, then wakes if there are sleepers. The interleaving
//! that this excludes: a thread sees that it has to wait. What ends the wait comes, and all sleepers are woken. Then the thread
//! begins to sleep. It finds another count, and so does not sleep.

use super::sync::{AtomicU32, constructor};
use super::wait::Wait;
use core::sync::atomic::Ordering::SeqCst;

/// See the module.
pub struct EventCount {
    events: AtomicU32,
    sleepers: AtomicU32,
}

impl EventCount {
    constructor! {
        /// No event, and none sleeps.
        #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
        pub fn new() -> Self {
            Self { events: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
        }
    }

    /// Number of the last event.
    pub(crate) fn last(&self) -> u32 {
        self.events.load(SeqCst)
    }

    /// Sleeps until the last event is no longer `seen`, for `ns` at most (for ever where that is `None`), or for no reason.
    pub(crate) fn wait<P: Wait>(&self, platform: &P, seen: u32, ns: Option<u64>) {
        self.sleepers.fetch_add(1, SeqCst);
        if self.last() == seen {
            platform.wait_for(&self.events, seen, ns);
        }
        // None is left where a signal handler of this thread forked: in the child the count began anew.
        let _ = self.sleepers.fetch_update(SeqCst, SeqCst, |sleepers| sleepers.checked_sub(1));
    }

    /// Sleeps until the next event, as [`EventCount::wait`] does, unless `is_over`. The caller looks again.
    pub(crate) fn wait_unless<P: Wait>(&self, platform: &P, ns: Option<u64>, is_over: impl FnOnce() -> bool) {
        let seen = self.last();
        if !is_over() {
            self.wait(platform, seen, ns);
        }
    }

    /// One more event: wakes all sleepers. It makes a system call only where there are some.
    pub(crate) fn tell<P: Wait>(&self, platform: &P) {
        self.events.fetch_add(1, SeqCst);
        // A write, so that of this and a sleeper's own one comes second and sees what was written before the other.
        if self.sleepers.fetch_add(0, SeqCst) > 0 {
            platform.wake_all(&self.events);
        }
    }

    /// In a forked child: the sleepers are not there, but for the thread of which a signal handler forked. The kernel lets that
    /// sleep on while the count is what it was.
    pub(crate) fn inherit(&self) {
        self.events.fetch_add(1, SeqCst);
        self.sleepers.store(0, SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A signal handler forks while the thread sleeps.
    struct ForksInWait<'a>(&'a EventCount);

    impl Wait for ForksInWait<'_> {
        fn wait(&self, _word: &AtomicU32, _expected: u32) {}
        fn wake(&self, _word: &AtomicU32) {}
        fn wait_for(&self, word: &AtomicU32, expected: u32, _ns: Option<u64>) {
            self.0.inherit();
            assert_ne!(word.load(SeqCst), expected, "the kernel does not let it sleep on");
        }
        fn held_ranks(&self) -> Option<&AtomicU32> {
            None
        }
    }

    /// The event comes while the thread sleeps.
    struct TellsInWait<'a>(&'a EventCount, AtomicU32);

    impl Wait for TellsInWait<'_> {
        fn wait(&self, _word: &AtomicU32, _expected: u32) {}
        fn wake(&self, _word: &AtomicU32) {
            self.1.fetch_add(1, SeqCst);
        }
        fn wait_for(&self, word: &AtomicU32, expected: u32, _ns: Option<u64>) {
            self.0.tell(self);
            assert_ne!(word.load(SeqCst), expected, "who sleeps is let go");
        }
        fn held_ranks(&self) -> Option<&AtomicU32> {
            None
        }
    }

    #[test]
    fn an_event_wakes_who_sleeps_and_makes_no_call_for_nobody() {
        let events = EventCount::new();
        let platform = TellsInWait(&events, AtomicU32::new(0));
        events.tell(&platform);
        assert_eq!(platform.1.load(SeqCst), 0);
        events.wait_unless(&platform, None, || false);
        assert_eq!(platform.1.load(SeqCst), 1);
        events.tell(&platform);
        assert_eq!(platform.1.load(SeqCst), 1);
    }

    #[test]
    fn a_fork_while_a_thread_sleeps_leaves_no_sleeper() {
        let events = EventCount::new();
        events.wait_unless(&ForksInWait(&events), None, || false);
        assert_eq!(events.sleepers.load(SeqCst), 0);
    }
}
