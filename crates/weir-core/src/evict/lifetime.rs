//! How long an entry of a cache lives: until a time, and until it was not used for so long. Pure: who calls says what time it
//! is.

use crate::base::time::{Nanos, Time};

/// No end.
pub const FOR_EVER: Nanos = Nanos(u64::MAX);

/// An entry's ends, ns of the cache's clock. All zeros is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    live_until: Time,
    idle_until: Time,
    idle: Nanos,
}

impl Times {
    /// From `now` on for `live` ns, and until it was not used for `idle` ns; [`FOR_EVER`] is no end.
    pub const fn new(now: Time, live: Nanos, idle: Nanos) -> Self {
        Self { live_until: now.saturating_add(live), idle_until: now.saturating_add(idle), idle }
    }

    /// Whether it has ended. An end that saturated is none, whatever the clock says.
    #[inline]
    pub fn is_over(&self, now: Time) -> bool {
        now.min(Time(FOR_EVER.0 - 1)) >= self.live_until.min(self.idle_until)
    }

    /// Notes a use. Who looked at its clock before another and comes after it moves no end back.
    #[inline]
    pub fn use_at(&mut self, now: Time) {
        self.idle_until = self.idle_until.max(now.saturating_add(self.idle));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_ends_at_the_first_of_its_times() {
        let mut both = Times::new(Time(100), Nanos(50), Nanos(20));
        assert!(!both.is_over(Time(119)) && both.is_over(Time(120)));
        both.use_at(Time(115));
        assert!(!both.is_over(Time(134)) && both.is_over(Time(135)));
        both.use_at(Time(105));
        assert!(!both.is_over(Time(134)), "who looked at its clock before is late");
        both.use_at(Time(149));
        assert!(both.is_over(Time(150)), "use does not prolong its life");
        let mut never = Times::new(Time(100), FOR_EVER, FOR_EVER);
        never.use_at(Time(u64::MAX));
        assert!(!never.is_over(Time(u64::MAX)));
        assert!(Times::default().is_over(Time(0)));
    }
}
