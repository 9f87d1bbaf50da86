//! A buffer that grows by copies: a run is taken, the one before it copied into it and freed, and so on.
//!
//! None of the holes that it leaves is long enough for the next copy, so that each touches fresh memory and what is
//! resident comes to a multiple of the buffer. Such frees are told by their order: a run that touched fresh memory, the
//! free of one that is shorter but no less than half as long, several times in a row. What is freed then is of use to
//! nobody soon, and goes below at once: the next copy touches fresh memory either way. Any other order of calls, and a run
//! that finds resident memory, ends it.

use crate::page::PAGE;

/// Shortest run that counts, pages (256 KiB): releasing shorter ones saves less than it costs.
const LEAST: usize = (256 << 10) / PAGE;
/// Such frees in a row after which they are no chance.
const STREAK: u8 = 3;

/// What the last runs that were taken and freed say.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Pages of the run taken last, if it touched fresh memory and nothing was freed since.
    taken: usize,
    streak: u8,
}

impl Growth {
    pub(crate) const fn new() -> Self {
        Self { taken: 0, streak: 0 }
    }

    /// A run of `pages` pages was taken, of which `fresh` were not resident.
    pub(crate) fn take(&mut self, pages: usize, fresh: usize) {
        if pages < LEAST {
            return;
        }
        if self.taken != 0 || fresh < pages / 2 {
            self.streak = 0;
        }
        self.taken = if fresh < pages / 2 { 0 } else { pages };
    }

    /// A run of `pages` pages was freed; whether it is the former copy of a buffer that grows.
    pub(crate) fn give(&mut self, pages: usize) -> bool {
        if pages < LEAST {
            return false;
        }
        let taken = core::mem::take(&mut self.taken);
        let follows = pages < taken && taken <= 2 * pages;
        self.streak = if follows { self.streak.saturating_add(1) } else { 0 };
        self.streak >= STREAK
    }
}
