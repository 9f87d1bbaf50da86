//! A zone's boost: what pressure from outside adds to its marks for a time.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crate::base::time::{Nanos, Time};
use crate::base::units::Pages;
use crate::policy::watermarks::decayed;

/// Bits of the time, in milliseconds: 34 years.
const TIME_BITS: u32 = 40;
/// Most pages: 64 GiB.
const MOST: Pages = Pages((1 << (u64::BITS - TIME_BITS)) - 1);

/// Pages, and when they were set, in one word: so a run that ends takes off what it began with and nothing that came since.
pub struct Boost(AtomicU64);

impl Boost {
    /// No boost.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The boost at `now` (ns), of which nothing is left `life` ns after it was last raised.
    pub(crate) fn pages(&self, now: Time, life: Nanos) -> Pages {
        pages_of(self.0.load(Relaxed), now, life)
    }

    /// Adds `pages`, up to `cap` in all.
    pub(crate) fn add(&self, pages: Pages, cap: Pages, now: Time, life: Nanos) {
        self.update(now, life, |before| before.saturating_add(pages).min(cap.max(before)));
    }

    /// Takes `pages` off.
    pub(crate) fn subtract(&self, pages: Pages, now: Time, life: Nanos) {
        if !pages.is_zero() {
            self.update(now, life, |before| before.saturating_sub(pages));
        }
    }

    /// In a forked child: the pressure was its parent's.
    pub(crate) fn inherit(&self) {
        self.0.store(0, Relaxed);
    }

    fn update(&self, now: Time, life: Nanos, change: impl Fn(Pages) -> Pages) {
        let word = |before: u64| {
            let pages = change(pages_of(before, now, life)).min(MOST).0 as u64;
            if pages == 0 { 0 } else { (pages << TIME_BITS) | ((now.0 / 1_000_000) & ((1 << TIME_BITS) - 1)) }
        };
        let _ = self.0.fetch_update(SeqCst, Relaxed, |before| Some(word(before)));
    }
}

fn pages_of(word: u64, now: Time, life: Nanos) -> Pages {
    let at = (word & ((1 << TIME_BITS) - 1)) * 1_000_000;
    decayed(Pages((word >> TIME_BITS) as usize), now.since(Time(at)), life)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const LIFE: Nanos = Nanos(2 * S);

    #[test]
    fn it_is_capped_fades_and_gives_back_only_what_a_run_began_with() {
        let boost = Boost::new();
        boost.add(Pages(100), Pages(150), Time(10 * S), LIFE);
        boost.add(Pages(100), Pages(150), Time(10 * S), LIFE);
        assert_eq!(boost.pages(Time(10 * S), LIFE), Pages(150));
        assert_eq!(boost.pages(Time(11 * S), LIFE), Pages(75));
        assert_eq!(boost.pages(Time(12 * S), LIFE), Pages(0));
        let began_with = boost.pages(Time(10 * S), LIFE);
        boost.add(Pages(100), Pages(1000), Time(10 * S), LIFE);
        boost.subtract(began_with, Time(10 * S), LIFE);
        assert_eq!(boost.pages(Time(10 * S), LIFE), Pages(100), "what came while the run went on stays");
        boost.subtract(Pages(1000), Time(10 * S), LIFE);
        assert_eq!(boost.pages(Time(10 * S), LIFE), Pages(0));
        boost.add(Pages::MAX / 2, Pages::MAX, Time(10 * S), LIFE);
        assert_eq!(boost.pages(Time(10 * S), LIFE), MOST);
        boost.add(Pages::MAX, Pages::MAX, Time(10 * S), LIFE);
        assert_eq!(boost.pages(Time(9 * S), LIFE), MOST, "a clock that is set back takes nothing off");
        boost.inherit();
        assert_eq!(boost.pages(Time(10 * S), LIFE), Pages(0));
    }
}
