//! The level of pressure, and relief: an event of its own.
//!
//! A pressure event sets the level. It stays for `relief_ms` after the last event, and until the balance of all zones has
//! returned. Then there is relief, and caches may grow again. A cache that grew as soon as it was shrunk would bring back the
//! pressure that made it shrink.
//!
//! So milder events keep a severe level up, for as long as they come. Whether memory is wanted at once, whoever gives it, is another
//! matter: that is so for half a second after a severe event ([`Pressure::is_urgent`]).

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};

use crate::base::level::Level;
use crate::base::time::{Nanos, Time};

/// Time by which all processes of a group have heard of an event, ns: on a busy machine a thread gets a CPU in a tenth of it.
pub(crate) const HEARD_NS: Nanos = Nanos(500_000_000);

/// Bits of the level in the word; above them the time of the last event, ns.
const LEVEL_BITS: u32 = 2;

pub struct Pressure {
    /// The level and the time of the last event, in one word. So an event that comes as relief is found to be due prevents it.
    word: AtomicU64,
    /// The time of the first event since the last relief, ns.
    began: AtomicU64,
    /// The time of the last severe event, ns.
    severe: AtomicU64,
}

impl Pressure {
    /// No pressure.
    pub(crate) const fn new() -> Self {
        Self { word: AtomicU64::new(0), began: AtomicU64::new(0), severe: AtomicU64::new(0) }
    }

    /// The level now.
    pub(crate) fn level(&self) -> Level {
        level_of(self.word.load(Acquire))
    }

    /// An event at `now`; the level before. A lower level than that of the last event does not lower it: relief does.
    pub(crate) fn raise(&self, level: Level, now: Time) -> Level {
        if level == Level::Severe {
            self.severe.store(now.0, Relaxed);
        }
        let raised = |before: u64| Some(now.0 << LEVEL_BITS | level_of(before).max(level) as u64);
        let before = self.word.fetch_update(SeqCst, Acquire, raised).map_or(Level::None, level_of);
        if before == Level::None {
            self.began.store(now.0, Relaxed);
        }
        before
    }

    /// When pressure began, if there is any: with the first event since the last relief.
    pub(crate) fn began(&self) -> Time {
        Time(self.began.load(Relaxed))
    }

    /// Whether a severe event came so lately that others may not have heard of it.
    pub(crate) fn is_urgent(&self, now: Time) -> bool {
        self.level() == Level::Severe && now.since(Time(self.severe.load(Relaxed))) <= HEARD_NS
    }

    /// In a forked child, which hears of pressure anew.
    pub(crate) fn inherit(&self) {
        self.word.store(0, SeqCst);
    }

    /// When relief may come at the earliest, ns; `None`: there is no pressure.
    pub(crate) fn relief_due(&self, hold: Nanos) -> Option<Time> {
        let word = self.word.load(Acquire);
        (level_of(word) > Level::None).then_some(Time(word >> LEVEL_BITS) + hold)
    }

    /// Ends the pressure if no event came for `hold` ns before `now` and `is_balanced` says so; whether it did.
    pub(crate) fn relieve(&self, now: Time, hold: Nanos, is_balanced: impl FnOnce() -> bool) -> bool {
        let word = self.word.load(Acquire);
        level_of(word) > Level::None
            && now >= Time(word >> LEVEL_BITS) + hold
            && is_balanced()
            && self.word.compare_exchange(word, 0, SeqCst, Acquire).is_ok()
    }
}

fn level_of(word: u64) -> Level {
    match word & ((1 << LEVEL_BITS) - 1) {
        0 => Level::None,
        1 => Level::Some,
        _ => Level::Severe,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relief_comes_once_after_the_hold_and_not_before_balance_has_returned() {
        let pressure = Pressure::new();
        assert_eq!((pressure.level(), pressure.relief_due(Nanos(10))), (Level::None, None));
        assert!(!pressure.relieve(Time(1000), Nanos(10), || true));
        assert_eq!(pressure.raise(Level::Severe, Time(100)), Level::None);
        assert!(pressure.is_urgent(Time(100) + HEARD_NS) && !pressure.is_urgent(Time(101) + HEARD_NS));
        assert_eq!(pressure.raise(Level::Some, Time(105)), Level::Severe);
        assert_eq!(pressure.began(), Time(100));
        assert_eq!((pressure.level(), pressure.relief_due(Nanos(10))), (Level::Severe, Some(Time(115))));
        assert!(!pressure.relieve(Time(114), Nanos(10), || true) && !pressure.relieve(Time(200), Nanos(10), || false));
        // An event while the balance is looked at.
        assert!(!pressure.relieve(Time(200), Nanos(10), || {
            pressure.raise(Level::Some, Time(199));
            true
        }));
        assert!(pressure.relieve(Time(209), Nanos(10), || true) && !pressure.relieve(Time(300), Nanos(10), || true));
        assert_eq!(pressure.level(), Level::None);
        assert!(!pressure.is_urgent(Time(209)));
    }

    #[test]
    fn milder_events_keep_the_level_up_and_are_not_urgent() {
        let pressure = Pressure::new();
        pressure.raise(Level::Severe, Time(100));
        let later = Time(200) + HEARD_NS;
        pressure.raise(Level::Some, later);
        assert_eq!((pressure.level(), pressure.is_urgent(later)), (Level::Severe, false));
        pressure.raise(Level::Severe, later);
        assert!(pressure.is_urgent(later));
    }
}
