//! A buffer that grows by copies: a run is taken, the one before it copied into it and freed, and so on.
//!
//! None of the holes that it leaves is long enough for the next copy. So each copy touches fresh memory, and what is
//! resident comes to a multiple of the buffer. Such frees are told by their order. A run touches fresh memory, then one
//! is freed that is shorter but no less than half as long. This has to happen several times in a row, with neither run
//! shorter than the time before. Sizes drawn at random seldom rise three times. What is freed then is of no use to the
//! next copy, and is released at once. Any other order of calls, and runs that find resident memory, end it.

use crate::base::units::Pages;

/// Shortest run that counts (256 KiB): releasing shorter ones saves less than it costs.
pub(crate) const LEAST: Pages = Pages::in_bytes(256 << 10);
/// Frees of former copies in a row after which they are no chance.
const STREAK: u8 = 3;
/// Runs in a row that find resident memory, after which a buffer that grows by small steps is let alone. Its holes in a
/// row serve one copy in three, and so would stay.
const IDLE: u8 = 4;

/// Tells, by the last runs taken and freed, whether a buffer grows.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Pages of the run taken last, if nothing was freed since; else 0.
    taken: Pages,
    /// Most of it was not resident.
    is_fresh: bool,
    /// Pages of the runs taken and freed at the last free.
    last: (Pages, Pages),
    streak: u8,
    /// Runs in a row that found resident memory.
    idle: u8,
}

impl Growth {
    pub(crate) const fn new() -> Self {
        Self { taken: Pages::ZERO, is_fresh: false, last: (Pages::ZERO, Pages::ZERO), streak: 0, idle: 0 }
    }

    /// A run of `pages` pages was taken, of which `fresh` were not resident.
    pub(crate) fn take(&mut self, pages: Pages, fresh: Pages) {
        if pages < LEAST {
            return;
        }
        if !self.taken.is_zero() {
            self.streak = 0;
        }
        (self.taken, self.is_fresh) = (pages, fresh >= pages / 2);
    }

    /// A run of `pages` pages was freed; whether it is the former copy of a buffer that grows.
    pub(crate) fn give(&mut self, pages: Pages) -> bool {
        if pages < LEAST {
            return false;
        }
        let taken = core::mem::take(&mut self.taken);
        let last = core::mem::replace(&mut self.last, (taken, pages));
        let follows = pages < taken && taken <= pages * 2 && taken >= last.0 && pages >= last.1;
        let is_step = taken < pages + pages / 2;
        self.idle = if self.is_fresh { 0 } else { self.idle.saturating_add(1) };
        self.streak = match (follows, self.is_fresh) {
            (true, true) => self.streak.saturating_add(1),
            (true, false) if is_step && self.idle < IDLE => self.streak,
            _ => 0,
        };
        self.streak >= STREAK
    }
}
