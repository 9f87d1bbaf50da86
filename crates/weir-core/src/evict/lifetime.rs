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

    /// Whether it has ended.
    #[inline]
    pub const fn is_over(&self, now: Time) -> bool {
        is_past(self.live_until, now) || is_past(self.idle_until, now)
    }

    /// Notes a use.
    #[inline]
    pub const fn use_at(&mut self, now: Time) {
        self.idle_until = now.saturating_add(self.idle);
    }
}

/// Whether an end is past; one that saturated is none, whatever the clock says.
const fn is_past(until: Time, now: Time) -> bool {
    until.0 != FOR_EVER.0 && now.0 >= until.0
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
        both.use_at(Time(149));
        assert!(both.is_over(Time(150)), "use does not prolong its life");
        let mut never = Times::new(Time(100), FOR_EVER, FOR_EVER);
        never.use_at(Time(u64::MAX));
        assert!(!never.is_over(Time(u64::MAX)));
        assert!(Times::default().is_over(Time(0)));
    }
}
