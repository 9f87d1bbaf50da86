//! The refault meter: how much of what was reported is touched again soon, and what the calm policy makes of it.
//!
//! A report was a mistake if its memory is wanted back at once: the release, the fault and the zeroing were for
//! nothing. Memory that was reported lately is counted where it lies ([`Recent`]). There is a count for each pageblock,
//! one for the pages inside slabs of each size class, and one for blocks mapped on their own. What is taken from there
//! again ([`Refault`]) within `refault_ms` counts as touched again. Nothing of that is on a fast path, and a
//! pageblock's 192 bytes have room for it.
//!
//! The counts say how much went and how much came back, not which page did. A pageblock may have 10 pages reported
//! lately. What is taken from it then counts as touched again for 10 pages at most, though it may be fresh ones that
//! were taken.
//!
//! [`Patience`] doubles for how long calm windows keep what was used ([`super::hold`]), while more than
//! `refault_percent` of what they reported comes back: up to `hold_ms`. It halves that time again, ever more cautiously
//! the longer it had become. Pressure is answered at once whatever the time.

use crate::base::time::{Nanos, Time};
use crate::base::units::Pages;

/// log2 of a time stamp's unit in ns: 16.8 ms.
const STAMP_SHIFT: u32 = 24;
/// Bytes that calm windows must have reported lately for a share of them to mean anything.
const EVIDENCE: u64 = 1 << 20;

/// A coarse point in time, of a clock in ns. It wraps after two years.
pub(crate) const fn stamp(now: Time) -> u32 {
    (now.0 >> STAMP_SHIFT) as u32
}

/// How many stamps `time` is.
pub(crate) const fn span(time: Nanos) -> u32 {
    (time.0 >> STAMP_SHIFT) as u32
}

/// Pages reported lately from one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// When the last of them were.
    at: u32,
    /// Twice the number of those not taken again, as far as it is known; plus one if a calm window reported the last.
    pages_calm: u32,
}

const _: () = assert!(size_of::<Recent>() == 8);

/// Pages that were reported before, and are taken now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "it is to be counted, once no lock is held any more"]
pub struct Refault {
    /// How many.
    pub pages: u32,
    /// When they were reported.
    at: u32,
    /// By a calm window.
    pub calm: bool,
}

impl Recent {
    /// Nothing.
    pub const NONE: Self = Self { at: 0, pages_calm: 0 };

    /// `pages` more were reported at `at`; those before count on only if that was less than `horizon` stamps ago.
    pub(crate) fn reported(&mut self, pages: Pages, at: u32, calm: bool, horizon: u32) {
        let before = if at.wrapping_sub(self.at) <= horizon { self.pages_calm >> 1 } else { 0 };
        let pages = (before as usize + pages.0).min((u32::MAX >> 1) as usize) as u32;
        *self = Self { at, pages_calm: pages << 1 | u32::from(calm) };
    }

    /// `pages` without memory behind them were taken.
    pub(crate) fn taken(&mut self, pages: Pages) -> Refault {
        let again = pages.0.min((self.pages_calm >> 1) as usize) as u32;
        self.pages_calm -= again << 1;
        Refault { pages: again, at: self.at, calm: self.pages_calm & 1 == 1 }
    }
}

impl Refault {
    /// No pages.
    pub const NONE: Self = Self { pages: 0, at: 0, calm: false };

    /// This refault and another one together.
    pub(crate) fn and(self, other: Self) -> Self {
        if self.pages == 0 {
            return other;
        }
        if other.pages == 0 {
            return self;
        }
        // The younger of the two stands for both: they lie side by side, and mostly went in one batch.
        let younger = if self.at.wrapping_sub(other.at) < u32::MAX / 2 { self } else { other };
        Self { pages: self.pages + other.pages, ..younger }
    }

    /// Whether it was at most `horizon` stamps ago.
    pub(crate) fn is_soon(&self, now: u32, horizon: u32) -> bool {
        self.pages > 0 && now.wrapping_sub(self.at) <= horizon
    }
}

/// How long the calm policy waits, from how often it was wrong.
///
/// ```
/// use weir_core::base::time::{Nanos, Time};
/// use weir_core::policy::refault::Patience;
/// let (begin, second, mib) = (Time(0), Nanos(1_000_000_000), 1 << 20);
/// let mut patience = Patience::new();
/// assert_eq!(patience.update(begin + second, (100 * mib, 5 * mib), 10, second * 10), 0); // 5 % came back: fine
/// assert_eq!(patience.update(begin + second * 2, (100 * mib, 50 * mib), 10, second * 10), 1); // 27 %: wait longer
/// assert_eq!(patience.update(begin + second * 30, (0, 0), 10, second * 10), 0); // nothing for 20 s: try again
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    level: u32,
    /// When `level` last changed, or last proved to be needed.
    since: Time,
    /// Bytes reported and touched again, in this epoch and in the one before; an epoch is as long as the horizon.
    sums: [(u64, u64); 2],
    epoch: Time,
}

impl Patience {
    /// No need for any.
    pub const fn new() -> Self {
        Self { level: 0, since: Time::ZERO, sums: [(0, 0); 2], epoch: Time::ZERO }
    }

    /// Doublings of the hold now.
    pub(crate) fn level(&self) -> u32 {
        self.level
    }

    /// Takes in what calm windows reported since the last call and what of their reports was touched again, in bytes;
    /// returns the level. `percent`: the share that is no harm (100: none is); `horizon`: what "again" means, ns.
    pub fn update(&mut self, now: Time, (reported, again): (u64, u64), percent: u64, horizon: Nanos) -> u32 {
        if now.since(self.epoch) >= horizon {
            let lately = now.since(self.epoch) < horizon * 2;
            self.sums = [(0, 0), if lately { self.sums[0] } else { (0, 0) }];
            self.epoch = now;
        }
        self.sums[0] = (self.sums[0].0 + reported, self.sums[0].1 + again);
        let (reported, again) = (self.sums[0].0 + self.sums[1].0, self.sums[0].1 + self.sums[1].1);
        let hurts = reported >= EVIDENCE && u128::from(again) * 100 > u128::from(reported) * u128::from(percent);
        if percent >= 100 {
            (self.level, self.since) = (0, now);
        } else if hurts {
            // The same evidence counts once.
            (self.level, self.since, self.sums) = (self.level + 1, now, [(0, 0); 2]);
        } else if self.level > 0 && now.since(self.since) >= horizon.saturating_mul(1 << self.level.min(32)) {
            (self.level, self.since) = (self.level - 1, now);
        }
        self.level
    }

    /// Keeps the level at `max` at most.
    pub(crate) fn cap(&mut self, max: u32) {
        self.level = self.level.min(max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_taken_soon_counts_and_no_more_than_was_reported() {
        let mut recent = Recent::NONE;
        assert_eq!(recent.taken(Pages(5)).pages, 0);
        recent.reported(Pages(10), 100, true, 600);
        let again = recent.taken(Pages(7));
        assert!(again.pages == 7 && again.calm);
        assert!(again.is_soon(700, 600) && !again.is_soon(701, 600));
        assert_eq!((recent.taken(Pages(7)).pages, recent.taken(Pages(7)).pages), (3, 0));
        recent.reported(Pages(10), 700, true, 600);
        recent.reported(Pages(10), 1301, false, 600);
        assert_eq!(recent.taken(Pages(100)), Refault { pages: 10, at: 1301, calm: false });
    }

    #[test]
    fn stamps_and_spans_are_in_one_unit() {
        let (long, later) = (Nanos(10 * SECOND), Time(SECOND + 10 * SECOND));
        // A stamp is 16.8 ms.
        assert_eq!(span(long), 596);
        assert!((span(long)..=span(long) + 1).contains(&(stamp(later) - stamp(Time(SECOND)))));
    }

    #[test]
    fn patience_grows_by_steps_and_goes_by_longer_ones() {
        let mut patience = Patience::new();
        let mut now = SECOND;
        for level in 1..=3 {
            now += SECOND;
            assert_eq!(patience.update(Time(now), (10 * MIB, 5 * MIB), 10, Nanos(10 * SECOND)), level);
            now += SECOND;
            assert_eq!(
                patience.update(Time(now), (0, 5 * MIB), 10, Nanos(10 * SECOND)),
                level,
                "old reports prove nothing new"
            );
        }
        let raised = now - SECOND;
        let mut falls = Vec::new();
        while patience.level() > 0 {
            now += SECOND;
            let before = patience.level();
            if patience.update(Time(now), (0, 0), 10, Nanos(10 * SECOND)) < before {
                falls.push((now - raised) / SECOND);
            }
        }
        assert_eq!(falls, [80, 120, 140]);
    }

    #[test]
    fn too_little_to_tell_is_no_harm() {
        let mut patience = Patience::new();
        assert_eq!(patience.update(Time(SECOND), (MIB / 2, MIB / 2), 10, Nanos(10 * SECOND)), 0);
        assert_eq!(patience.update(Time(2 * SECOND), (100 * MIB, 100 * MIB), 100, Nanos(10 * SECOND)), 0);
        // Nor does harm count from then on that was found before.
        assert_eq!(patience.update(Time(3 * SECOND), (100 * MIB, 100 * MIB), 10, Nanos(10 * SECOND)), 1);
        assert_eq!(patience.update(Time(4 * SECOND), (0, 0), 100, Nanos(10 * SECOND)), 0);
    }

    proptest! {
        #[test]
        fn the_level_is_bounded_by_the_evidence(
            steps in prop::collection::vec((0u64..30 * SECOND, 0..50 * MIB, 0..50 * MIB), 0..100),
        ) {
            let (mut patience, mut now, mut evidence) = (Patience::new(), SECOND, 0);
            for (pause, reported, again) in steps {
                now += pause;
                let before = patience.level();
                let level = patience.update(Time(now), (reported, again), 10, Nanos(10 * SECOND));
                evidence += reported;
                prop_assert!(level <= before + 1 && u64::from(level) * EVIDENCE <= evidence);
            }
        }
    }
}
