//! Looking for a client's next request for a moment before waiting for it.
//!
//! A client that has one request under way sends the next as soon as it has its reply. A server that sleeps meanwhile pays for
//! falling asleep and for being woken. On a virtual machine its CPU halts, and an interrupt of the host's brings it back.
//! Together that is more than the request itself takes. So a connection whose client keeps answering soon looks for a short time
//! before it waits. One that waited for longer than that stops looking: a quiet server takes no processor time.
//!
//! Between two looks it lets the worker's other tasks run, and other threads of its CPU: the client may be one. Without that,
//! the worker keeps from its CPU just what it waits for. The throughput is half then where there are as many clients as CPUs.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A connection looks for as long at most. Waking takes 20 to 50 us on a virtual machine, as measured, so a longer look may cost
/// more than it saves.
const MOST: Duration = Duration::from_micros(50);
/// For how long it looks when requests begin to come soon.
const FIRST: Duration = Duration::from_micros(10);
/// Connections of a worker that look at a time: each look is a call, and one call waits for any number.
const MOST_LOOKING: usize = 4;

thread_local! {
    static LOOKING: Cell<usize> = const { Cell::new(0) };
}

/// How long a connection looks before it waits.
#[derive(Default)]
pub struct BusyPoll {
    /// Zero: no request is expected soon.
    span: Duration,
}

/// A look that is under way, until this is dropped.
pub struct Look {
    began: Instant,
    span: Duration,
}

impl BusyPoll {
    /// Begins to look, if that is worth it.
    pub fn look(&self) -> Option<Look> {
        let looks = !self.span.is_zero() && LOOKING.get() < MOST_LOOKING;
        looks.then(|| {
            LOOKING.set(LOOKING.get() + 1);
            Look { began: Instant::now(), span: self.span }
        })
    }

    /// The connection waited for `time`, after it had looked in vain or not at all.
    pub fn waited(&mut self, time: Duration) {
        self.span = if time < MOST { (2 * self.span).clamp(FIRST, MOST) } else { Duration::ZERO };
    }
}

impl Look {
    /// Its time is not over.
    pub fn goes_on(&self) -> bool {
        self.began.elapsed() < self.span
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        LOOKING.set(LOOKING.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_only_while_waits_are_short() {
        let mut busy_poll = BusyPoll::default();
        assert!(busy_poll.look().is_none());
        let spans = [9, 0, 49, 1].map(|us| {
            busy_poll.waited(Duration::from_micros(us));
            busy_poll.span.as_micros()
        });
        assert_eq!(spans, [10, 20, 40, 50]);
        let looks: Vec<_> = (0..9).filter_map(|_| busy_poll.look()).collect();
        assert_eq!(looks.len(), MOST_LOOKING);
        drop(looks);
        assert!(busy_poll.look().is_some());
        busy_poll.waited(MOST);
        assert!(busy_poll.look().is_none());
    }

    #[test]
    fn a_look_has_an_end() {
        let looks_for = |span| Look { began: Instant::now(), span };
        LOOKING.set(2);
        assert!(looks_for(Duration::from_secs(3600)).goes_on());
        assert!(!looks_for(Duration::ZERO).goes_on());
        assert_eq!(LOOKING.get(), 0);
    }
}
