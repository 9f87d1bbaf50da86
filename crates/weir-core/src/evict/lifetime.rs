//! How long an entry of a cache lives: until a time, and until it was not used for so long. Pure: who calls says what time it
//! is.

/// No end.
pub const FOR_EVER: u64 = u64::MAX;

/// An entry's ends, ns of the cache's clock. All zeros is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    live_until: u64,
    idle_until: u64,
    idle: u64,
}

impl Times {
    /// From `now` on for `live` ns, and until it was not used for `idle` ns; [`FOR_EVER`] is no end.
    pub const fn new(now: u64, live: u64, idle: u64) -> Self {
        Self { live_until: now.saturating_add(live), idle_until: now.saturating_add(idle), idle }
    }

    /// Whether it has ended.
    #[inline]
    pub const fn is_over(&self, now: u64) -> bool {
        is_past(self.live_until, now) || is_past(self.idle_until, now)
    }

    /// Notes a use.
    #[inline]
    pub const fn use_at(&mut self, now: u64) {
        self.idle_until = now.saturating_add(self.idle);
    }
}

/// Whether an end is past; one that saturated is none, whatever the clock says.
const fn is_past(until: u64, now: u64) -> bool {
    until != FOR_EVER && now >= until
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_ends_at_the_first_of_its_times() {
        let mut both = Times::new(100, 50, 20);
        assert!(!both.is_over(119) && both.is_over(120));
        both.use_at(115);
        assert!(!both.is_over(134) && both.is_over(135));
        both.use_at(149);
        assert!(both.is_over(150), "use does not prolong its life");
        let mut never = Times::new(100, FOR_EVER, FOR_EVER);
        never.use_at(u64::MAX);
        assert!(!never.is_over(u64::MAX));
        assert!(Times::default().is_over(0));
    }
}
