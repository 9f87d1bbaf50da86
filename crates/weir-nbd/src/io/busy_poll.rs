//! Looking for results for a moment before sleeping.
//!
//! A client that has one request under way sends the next as soon as it has its reply. A server that sleeps meanwhile pays for
//! falling asleep and for being woken, and on a virtual machine its CPU halts, from which an interrupt of the host's brings it
//! back: together more than the request itself takes. So a worker that keeps being woken soon looks for a short time before
//! it sleeps. One that slept for longer than that stops looking: a quiet server takes no processor time.
//!
//! Between two looks it lets other threads of its CPU run: the client may be one. (Without that, the worker keeps from its CPU
//! just what it waits for: half the throughput where there are as many clients as CPUs.)

use std::time::{Duration, Instant};

/// A worker looks for as long at most: waking takes 20 to 50 us on a virtual machine, as measured, so that a longer look may cost
/// more than it saves.
const MOST: Duration = Duration::from_micros(50);
/// For how long it looks when results begin to come soon.
const FIRST: Duration = Duration::from_micros(10);

/// How long a worker looks for results before it sleeps.
#[derive(Default)]
pub struct BusyPoll {
    /// Zero: results are not expected soon.
    span: Duration,
}

impl BusyPoll {
    /// Whether results are expected soon.
    pub fn is_worth_it(&self) -> bool {
        !self.span.is_zero()
    }

    /// Looks until `is_there`, but not beyond `timeout`; whether it is there.
    pub fn look(&self, timeout: Option<Duration>, mut is_there: impl FnMut() -> bool) -> bool {
        let span = timeout.map_or(self.span, |timeout| timeout.min(self.span));
        let began = Instant::now();
        while !is_there() {
            if began.elapsed() >= span {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// The worker slept for `time`, after it had looked in vain or not at all.
    pub fn slept(&mut self, time: Duration) {
        self.span = if time < MOST { (2 * self.span).clamp(FIRST, MOST) } else { Duration::ZERO };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_only_while_sleeps_are_short() {
        let mut busy_poll = BusyPoll::default();
        assert!(!busy_poll.is_worth_it());
        let spans = [9, 0, 49, 1].map(|us| {
            busy_poll.slept(Duration::from_micros(us));
            busy_poll.span.as_micros()
        });
        assert_eq!(spans, [10, 20, 40, 50]);
        busy_poll.slept(MOST);
        assert!(!busy_poll.is_worth_it());
    }

    #[test]
    fn it_looks_until_something_is_there_or_its_time_is_over() {
        let busy_poll = BusyPoll { span: Duration::from_secs(3600) };
        let mut looks = 0;
        let mut third = || {
            looks += 1;
            looks == 3
        };
        assert!(busy_poll.look(None, &mut third));
        assert_eq!(looks, 3);
        assert!(!busy_poll.look(Some(Duration::from_millis(1)), || false));
        assert!(!BusyPoll { span: FIRST }.look(None, || false));
    }
}
