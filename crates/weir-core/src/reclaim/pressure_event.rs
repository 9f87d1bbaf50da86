//! Changes of memory pressure, as a program may read them and wait for them.
//!
//! Each pressure event, and the relief after the last one, has a number of its own, the *generation*. Only the latest is
//! kept: who comes late sees the level as it is, and by the generation that something was missed.
//!
//! Level and generation are written under the lock of the callbacks' list ([`crate::evict`]), and read without it.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::base::cause::Cause;
use crate::base::level::Level;
use crate::platform::Wait;
use crate::platform::sync::{AtomicU32, AtomicU64, constructor};

/// A change of memory pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// How short memory is; [`Level::None`] is relief: pressure has ended.
    pub level: Level,
    /// Cause of the pressure; of relief, that of the last pressure.
    pub cause: Cause,
    /// Number of the event: each is 1 above the one before, and wraps around. 0: there was none yet.
    pub generation: u32,
}

impl Event {
    /// All of it in a word; 0 only before the first event.
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | (self.cause as u64) << 8 | self.level as u64
    }

    /// Undoes [`Event::pack`].
    pub(crate) fn unpack(word: u64) -> Self {
        let level = match word & 0xff {
            0 => Level::None,
            1 => Level::Some,
            _ => Level::Severe,
        };
        let cause = match word >> 8 & 0xff {
            0 => Cause::Idle,
            1 => Cause::Pressure,
            2 => Cause::Limit,
            _ => Cause::Asked,
        };
        Self { level, cause, generation: (word >> 32) as u32 }
    }
}

/// See the module.
pub struct PressureEvents {
    /// The latest event, packed.
    latest: AtomicU64,
    /// Generation of the latest event, to sleep on.
    generation: AtomicU32,
    /// A forked child keeps the count: the thread of which a signal handler forked may sleep on there. The parent's others, which
    /// count for good, cost a call for each event.
    sleepers: AtomicU32,
    /// Who reads the level now and then, and wants it to be true.
    readers: AtomicU32,
}

impl PressureEvents {
    constructor! {
        /// No pressure.
        #[allow(clippy::new_without_default, reason = "const, and only ever part of a static")]
        pub fn new() -> Self {
            Self {
                latest: AtomicU64::new(0),
                generation: AtomicU32::new(0),
                sleepers: AtomicU32::new(0),
                readers: AtomicU32::new(0),
            }
        }
    }

    /// The latest event.
    pub fn latest(&self) -> Event {
        Event::unpack(self.latest.load(Acquire))
    }

    /// Counts one more who reads the level and wants pressure to be listened for.
    pub fn add_reader(&self) {
        self.readers.fetch_add(1, Relaxed);
    }

    /// Undoes [`PressureEvents::add_reader`].
    pub fn remove_reader(&self) {
        self.readers.fetch_sub(1, Relaxed);
    }

    /// Whether anybody reads the level.
    pub fn is_read(&self) -> bool {
        self.readers.load(Relaxed) > 0
    }

    /// Notes an event; one caller at a time.
    pub(crate) fn note(&self, level: Level, cause: Cause) -> Event {
        let before = self.latest();
        // The word 0 is kept for "no event yet".
        let generation = before.generation.checked_add(1).unwrap_or(1);
        let event = Event { level, cause, generation };
        self.latest.store(event.pack(), Release);
        self.generation.store(generation, SeqCst);
        event
    }

    /// Wakes who sleeps in [`PressureEvents::wait`]; to be called after [`PressureEvents::note`]. Costs a load where none sleeps.
    pub(crate) fn wake<P: Wait>(&self, platform: &P) {
        // A sleeper counts itself before it compares the generation. The generation was stored before this look. So
        // either the sleeper is seen here, or it sees the new generation.
        if self.sleepers.load(SeqCst) > 0 {
            platform.wake_all(&self.generation);
        }
    }

    /// Sleeps until the generation is no longer `seen`, for `ns` at most (for ever where that is `None`), or for no
    /// reason.
    pub fn wait<P: Wait>(&self, platform: &P, seen: u32, ns: Option<u64>) {
        self.sleepers.fetch_add(1, SeqCst);
        if self.generation.load(SeqCst) == seen {
            platform.wait_for(&self.generation, seen, ns);
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Counts sleeps and wakes; an event comes in a sleep.
    #[derive(Default)]
    struct Sleeper<'a> {
        events: Option<&'a PressureEvents>,
        calls: core::cell::Cell<[u32; 2]>,
    }

    impl Wait for Sleeper<'_> {
        fn wait(&self, _word: &AtomicU32, _expected: u32) {}
        fn wake(&self, _word: &AtomicU32) {
            let [sleeps, wakes] = self.calls.get();
            self.calls.set([sleeps, wakes + 1]);
        }
        fn wait_for(&self, word: &AtomicU32, expected: u32, _ns: Option<u64>) {
            assert_eq!(word.load(Relaxed), expected);
            let [sleeps, wakes] = self.calls.get();
            self.calls.set([sleeps + 1, wakes]);
            let events = self.events.expect("who sleeps is woken");
            events.note(Level::Some, Cause::Pressure);
            events.wake(self);
        }
        fn held_ranks(&self) -> Option<&AtomicU32> {
            None
        }
    }

    #[test]
    fn who_waits_sleeps_until_there_is_a_new_event_and_nobody_is_woken_for_nothing() {
        let events = PressureEvents::new();
        let sleeper = Sleeper { events: Some(&events), ..Sleeper::default() };
        events.wake(&sleeper);
        assert_eq!(sleeper.calls.get(), [0, 0]);
        events.wait(&sleeper, 0, None);
        assert_eq!(sleeper.calls.get(), [1, 1]);
        // What it has not seen is there.
        events.wait(&sleeper, 0, None);
        events.wake(&sleeper);
        assert_eq!(sleeper.calls.get(), [1, 1]);
    }

    #[test]
    fn an_event_fits_into_a_word() {
        for level in [Level::None, Level::Some, Level::Severe] {
            for cause in [Cause::Idle, Cause::Pressure, Cause::Limit, Cause::Asked] {
                for generation in [0, 1, u32::MAX] {
                    let event = Event { level, cause, generation };
                    assert_eq!(Event::unpack(event.pack()), event);
                }
            }
        }
    }

    #[test]
    fn generations_rise_and_are_never_0_again() {
        let pressure = PressureEvents::new();
        assert_eq!(pressure.latest().generation, 0);
        assert_eq!(pressure.note(Level::Some, Cause::Pressure).generation, 1);
        assert_eq!(pressure.latest().level, Level::Some);
        let last = Event { level: Level::Some, cause: Cause::Limit, generation: u32::MAX };
        pressure.latest.store(last.pack(), Relaxed);
        assert_eq!(pressure.note(Level::None, Cause::Limit).generation, 1);
    }
}
