//! Habits of a program with its blocks, as far as the last of them tell:
//!
//! - which part of a block it touches ([`Filled`]);
//! - how much of those handed out will become resident ([`Expected`]);
//! - whether it replaces them all the time ([`Churn`]).
//!
//! Each bounds one cost. Without the first a buffer that is half touched costs a peak of its whole length. Without the second a
//! block that is handed out again seems to take memory anew. Without the third blocks of changing lengths are faulted in each
//! time.

use crate::base::units::{Bytes, PAGEBLOCK};

/// Freed blocks that are remembered.
const REMEMBERED: usize = 16;
/// A part is told in this many of the whole.
const WHOLE: usize = 255;

/// The parts.
#[derive(Debug)]
pub struct Filled {
    parts: [u8; REMEMBERED],
    next: u8,
}

impl Filled {
    /// Nothing was freed yet: all of a block is taken to be touched.
    pub(crate) const fn new() -> Self {
        Self { parts: [WHOLE as u8; REMEMBERED], next: 0 }
    }

    /// A block of `len` bytes was freed, `resident` of which have memory behind them.
    pub(crate) fn observe(&mut self, resident: Bytes, len: usize) {
        self.parts[self.next as usize] = (resident.0.min(len) / (len / WHOLE).max(1) + 1).min(WHOLE) as u8;
        self.next = (self.next + 1) % REMEMBERED as u8;
    }

    /// What, of `bytes` in use, will have been touched when they are freed, at most.
    pub(crate) fn of(&self, bytes: Bytes) -> Bytes {
        let part = usize::from(self.parts.iter().copied().max().unwrap_or(WHOLE as u8));
        if part == WHOLE { bytes } else { bytes / WHOLE * part }
    }
}

// What is expected to become resident of the blocks that are handed out, until there is enough of it to be worth a
// release elsewhere.
//
// Most of a block may never be touched, and a kept block is handed out again and again. If each time all of it counted, a program
// that touches little of such blocks would seem to take gigabytes in a moment. Memory would seem to be short, and each allocation
// would search for something to release. So the part that blocks are touched to counts ([`Filled`](super::habits::Filled)). Bytes
// that did not come true count no longer once the block is freed.

/// Bytes that are worth a release elsewhere: as much as zones hand out between two of them.
const ENOUGH: Bytes = Bytes(PAGEBLOCK);

/// Bytes expected since the last time that there were enough.
#[derive(Debug)]
pub struct Expected(Bytes);

impl Expected {
    /// Nothing was seen yet.
    pub(crate) const fn new() -> Self {
        Self(Bytes::ZERO)
    }

    /// A block is handed out, of which `bytes` are expected; all that are, once they are enough, else 0.
    pub(crate) fn add(&mut self, bytes: Bytes) -> Bytes {
        self.0 = self.0.saturating_add(bytes);
        if self.0 < ENOUGH { Bytes::ZERO } else { core::mem::take(&mut self.0) }
    }

    /// A block is freed, of which `bytes` were expected and did not come.
    pub(crate) fn sub(&mut self, bytes: Bytes) {
        self.0 = self.0.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod expected_tests {
    use super::*;

    #[test]
    fn what_does_not_come_true_is_never_enough() {
        let mut expected = Expected::new();
        for _ in 0..1000 {
            assert!(expected.add(ENOUGH / 2).is_zero());
            expected.sub(ENOUGH / 2);
        }
        let told = [ENOUGH - Bytes(1), Bytes(5), Bytes(4)].map(|bytes| expected.add(bytes));
        assert_eq!(told, [Bytes::ZERO, ENOUGH + Bytes(4), Bytes::ZERO]);
        expected.sub(ENOUGH);
        assert_eq!(expected.add(ENOUGH), ENOUGH, "of what was told already nothing is taken back");
    }
}

// Whether a program replaces its blocks by blocks of other lengths, again and again. Where it does, the memory of those that went
// for lack of room is touched anew at once, which costs far more than all else. A heap that joins free memory, as the C
// library's, has holes of about a third of what is in use there. So more may be kept.

/// Peaks dropped for lack of room that make it churn. A program that grows buffers by steps, and frees them, drops half a peak
/// each time.
const ENTER: usize = 8;
/// Peaks that must be freed in a window for the churn to go on.
const STAY: usize = 8;
/// Part of the peak that kept blocks may raise it by meanwhile.
const RAISE: usize = 4;

/// Tells whether blocks come and go all the time.
#[derive(Debug)]
pub struct Churn {
    /// What had memory behind it and was dropped for lack of room: in this window, and half of that before.
    dropped: Bytes,
    /// And that were freed in this window.
    freed: Bytes,
    is_on: bool,
}

impl Churn {
    /// Nothing was seen yet.
    pub(crate) const fn new() -> Self {
        Self { dropped: Bytes::ZERO, freed: Bytes::ZERO, is_on: false }
    }

    /// A block with `resident` behind it was freed.
    pub(crate) fn free(&mut self, resident: Bytes) {
        self.freed = self.freed.saturating_add(resident);
    }

    /// `resident` was dropped for lack of room, at a peak of `high`.
    pub(crate) fn drop(&mut self, resident: Bytes, high: Bytes) {
        self.dropped = self.dropped.saturating_add(resident);
        self.is_on |= self.dropped / ENTER >= high;
    }

    /// A window ends, of which `high` was the peak.
    pub(crate) fn roll(&mut self, high: Bytes) {
        self.is_on &= self.freed / STAY >= high;
        (self.dropped, self.freed) = (self.dropped / 2, Bytes::ZERO);
    }

    /// The part of the peak that kept blocks may raise it by: one in so many, `usual` where there is no churn.
    pub(crate) fn raise(&self, usual: usize) -> usize {
        if self.is_on { RAISE } else { usual }
    }
}

#[cfg(test)]
mod churn_tests {
    use super::*;

    const HIGH: Bytes = Bytes(1000);

    #[test]
    fn it_takes_many_peaks_to_begin_and_a_quiet_window_to_end() {
        let mut churn = Churn::new();
        for _ in 0..100 {
            churn.free(HIGH);
            churn.drop(HIGH / 2, HIGH);
            churn.roll(HIGH);
            assert_eq!(churn.raise(12), 12, "half a peak a window");
        }
        (0..ENTER).for_each(|_| churn.drop(HIGH, HIGH));
        assert_eq!(churn.raise(12), RAISE);
        for _ in 0..3 {
            churn.free(HIGH * STAY);
            churn.roll(HIGH);
            assert_eq!(churn.raise(12), RAISE, "nothing needs to be dropped any more");
        }
        churn.free(HIGH * STAY - Bytes(1));
        churn.roll(HIGH);
        assert_eq!(churn.raise(12), 12);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_of_the_last_blocks_counts() {
        const LEN: usize = 6 << 20;
        const ALL: Bytes = Bytes(LEN);
        let mut filled = Filled::new();
        for _ in 0..REMEMBERED {
            assert_eq!(filled.of(Bytes(LEN + 7)), Bytes(LEN + 7));
            filled.observe(ALL / 2, LEN);
        }
        assert!((ALL / 2..ALL / 100 * 51).contains(&filled.of(ALL)), "{:?}", filled.of(ALL));
        filled.observe(ALL, LEN);
        (1..REMEMBERED).for_each(|_| filled.observe(Bytes::ZERO, LEN));
        assert_eq!(filled.of(ALL), ALL);
        filled.observe(Bytes::ZERO, LEN);
        assert!(filled.of(ALL) <= ALL / 100, "nothing was touched");
    }
}
