//! Traits that the parts of a heap implement: one each for reclaim, `fork`, the audit and the figures.

use super::goal::{Ended, Goal};
use super::step::{Step, Steps};
use super::usage::Audit;
use super::usage::{Figures, Usage};
use crate::base::fault::Fault;
use crate::base::level::Level;
use crate::base::units::Bytes;
use crate::base::zone_class::ZoneClass;
use crate::platform::Wait;
use crate::platform::lock::RankTurn;
use core::ops::{Add, AddAssign};

/// Outcome of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Released to what is below.
    pub released: Bytes,
    /// Moved from caches to where it can be released, or be used by others; and metadata that was released.
    pub moved: Bytes,
    /// Looked at for it. What is free is found without a search: there it is what was reclaimed.
    pub scanned: Bytes,
}

impl Reclaimed {
    /// Released.
    pub(crate) fn released(bytes: Bytes) -> Self {
        Self { released: bytes, moved: Bytes::ZERO, scanned: bytes }
    }

    /// Moved.
    pub(crate) fn moved(bytes: Bytes) -> Self {
        Self { released: Bytes::ZERO, moved: bytes, scanned: bytes }
    }

    /// Whether there was nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        self.total().is_zero()
    }

    /// Released and moved together.
    pub(crate) fn total(&self) -> Bytes {
        self.released.saturating_add(self.moved)
    }
}

impl Add for Reclaimed {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            released: self.released.saturating_add(other.released),
            moved: self.moved.saturating_add(other.moved),
            scanned: self.scanned.saturating_add(other.scanned),
        }
    }
}

impl AddAssign for Reclaimed {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Something that holds memory which may be idle.
pub trait Reclaimable {
    /// The steps at which it is scanned: what it costs to reclaim, as the cheapest step comes first.
    fn steps(&self) -> Steps;

    /// What is idle now and that `goal` lets go, as far as that is known without a scan.
    fn count(&self, _goal: &Goal) -> Bytes {
        Bytes::ZERO
    }

    /// Reclaims what belongs to `step` until `goal.bytes` are reached or nothing is left that the goal lets go. It holds no
    /// lock over a system call, touches nothing that is in use, and does not count as demand what it moves itself.
    fn scan(&self, step: Step, goal: &Goal) -> Reclaimed;

    /// Whether there are caches of the program's, in zones of class `zone`, that would give up what is in use under pressure.
    fn has_evictable(&self, _zone: ZoneClass) -> bool {
        false
    }

    /// Whether it is to hear of relief in time, even in a program at rest: there is a cache or a subscriber.
    fn hears_pressure(&self) -> bool {
        ZoneClass::ALL.into_iter().any(|zone| self.has_evictable(zone))
    }

    /// Pressure rose to `level`; at [`Level::None`] there is relief: caches may grow again.
    fn pressure_changed(&self, _level: Level) {}

    /// A calm window ends: estimates of working sets are brought up to date.
    fn end_window(&self, _ended: Ended) {}
}

/// Something that has locks, which a fork takes.
///
/// # Safety
/// It passes the same locks to both turns of a rank: none comes or goes between them.
pub unsafe trait Freeze<P: Wait> {
    /// Passes its locks to the turn of a rank.
    fn freeze(&self, turn: &RankTurn<'_, P>);
}

/// Something that has lists and counts, which an audit checks.
pub trait Audited {
    /// Checks that every list and count is right, and adds what it counts. To be called while no other thread uses the heap,
    /// with every batch lock taken.
    fn audit(&self, audit: &mut Audit) -> Result<(), Fault>;
}

/// Something that knows where memory is.
pub trait Measured {
    /// Adds what its counters say. With `waits` false no lock is waited for: the process may be about to end.
    fn publish(&self, figures: &mut Figures, waits: bool);

    /// Corrects where the memory is, which the caches' and the blocks' walks found by then, by what it alone knows. O(1).
    fn add_usage(&self, _usage: &mut Usage) {}

    /// Resident bytes of its metadata.
    fn metadata(&self) -> usize {
        0
    }
}
