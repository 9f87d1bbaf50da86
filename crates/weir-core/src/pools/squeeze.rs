//! The squeeze window: while it is open, pools keep nothing idle. (The protocol is in `mod.rs`.)
//!
//! Only the time of the last event is kept: the window's end follows from it and from the pool's `squeeze_ms`. A pool
//! remembers the event whose window it has found closed: its puts read the clock, a system call, in windows alone.

use crate::base::time::{Nanos, Time};

use super::event_count::EventCount;
use super::sync::{AtomicU64, constructor};
use super::wait::Wait;
use core::sync::atomic::Ordering::SeqCst;

/// The last window that a pool has found closed: 1 more than the number of its event; 0: none.
pub struct Closed(AtomicU64);

impl Closed {
    constructor! {
        /// No window was found closed.
        #[allow(clippy::new_without_default, reason = "const, as the part of a pool that it is")]
        pub fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// The pool's windows are of another length from now on: what was closed may be open.
    pub(crate) fn forget(&self) {
        self.0.store(0, SeqCst);
    }
}

/// See the module.
pub struct Squeeze {
    /// Time of the last pressure event, ns; 0: there was none.
    event: AtomicU64,
    /// The events; owners sleep on their count.
    pub(crate) events: EventCount,
}

impl Squeeze {
    constructor! {
        /// No event yet.
        #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
        pub fn new() -> Self {
            Self { event: AtomicU64::new(0), events: EventCount::new() }
        }
    }

    /// A pressure event at `now`: opens the window or extends it, and wakes owners that sleep. Takes no lock; makes a
    /// system call only where an owner sleeps.
    pub(crate) fn signal<P: Wait>(&self, platform: &P, now: Time) {
        self.event.fetch_max(now.0.max(1), SeqCst);
        self.events.tell(platform);
    }

    /// Whether the window is open for a pool that is squeezed for `ns` after an event. Reads the clock only if there
    /// was an event whose window the pool has not found closed.
    pub(crate) fn is_open(&self, closed: &Closed, ns: Nanos, now: impl FnOnce() -> Time) -> bool {
        // Before the time of the event, which is written before: the window that is found closed is this one's or a
        // later one's.
        let window = u64::from(self.events.last()) + 1;
        if closed.0.load(SeqCst) == window {
            return false;
        }
        let event = self.event.load(SeqCst);
        let is_open = event != 0 && ns > Nanos::ZERO && now() < Time(event).saturating_add(ns);
        if !is_open {
            closed.0.store(window, SeqCst);
        }
        is_open
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::platform::sync::AtomicU32;
    use core::cell::Cell;

    /// Counts wake-ups; a sleep ends at once.
    #[derive(Default)]
    struct Woken(Cell<u32>);

    impl Wait for Woken {
        fn wait(&self, _word: &AtomicU32, _expected: u32) {}
        fn wake(&self, _word: &AtomicU32) {
            self.0.set(self.0.get() + 1);
        }
        fn held_ranks(&self) -> Option<&AtomicU32> {
            None
        }
    }

    #[test]
    fn each_event_extends_the_window() {
        let (squeeze, woken, closed) = (Squeeze::new(), Woken::default(), Closed::new());
        let is_open = |ns, now| squeeze.is_open(&closed, Nanos(ns), || Time(now));
        assert!(!squeeze.is_open(&closed, Nanos(10), || unreachable!("the clock is not read before the first event")));
        squeeze.signal(&woken, Time(100));
        assert!(is_open(10, 109) && !is_open(10, 110));
        assert!(!squeeze.is_open(&closed, Nanos(10), || unreachable!("nor once the window was found closed")));
        squeeze.signal(&woken, Time(105));
        assert!(is_open(10, 114) && !is_open(10, 115));
        // One that comes late, of another thread, takes nothing away.
        squeeze.signal(&woken, Time(101));
        assert!(is_open(10, 114));
        assert_eq!((squeeze.events.last(), woken.0.get()), (3, 0), "none slept: no system call");
        assert!(!is_open(0, 105), "squeezing is off");
        closed.forget();
        assert!(is_open(10, 105), "and on again");
    }
}
