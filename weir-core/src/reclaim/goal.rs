//! The goals of reclaim: why, how far, how much. What differs between them is in this file and in [`super::order`], nowhere
//! else.

use crate::base::backing::Backing;
use crate::base::cause::Cause;
use crate::policy::deferred::DEF_PRIORITY;

/// The last priority of pressure below the severe level. (Linux stops there where reclaim is to cost little: boosted
/// watermarks.)
const PRESSURE_PRIORITY: u32 = 10;

/// What reclaim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A calm window ends: what the working set does not need.
    Calm {
        /// Nothing was allocated or freed in this window.
        quiet: bool,
        /// It is the first such: CPUs' buckets go too.
        drain: bool,
    },
    /// The program is at rest and its memory is limited. A limit without swap kills the moment it is met, before anybody
    /// could be told: so what calm windows keep goes too.
    Rest,
    /// Memory is short.
    Pressure,
    /// Memory is so short that tasks suffer.
    Severe,
    /// The program asked for it (`malloc_trim`).
    Asked,
    /// Memory is short, and one node's free pages are released by that node's worker.
    Node {
        /// The node.
        node: usize,
        /// At the severe level.
        severe: bool,
    },
    /// An allocation was refused memory: caches give up all they hold, to the zones.
    Shortage,
    /// A program's pages became resident beyond what peaks explain: what others keep idle goes in exchange.
    Room,
    /// The same for a block mapped on its own, which cannot use what is idle in zones.
    RoomForBlock,
}

impl Kind {
    /// The last priority at which what is in use is scanned. Pressure stops early, as it is heard again while it lasts.
    pub fn last_priority(self) -> u32 {
        match self {
            Self::Pressure => PRESSURE_PRIORITY,
            Self::Severe | Self::Shortage => 1,
            _ => DEF_PRIORITY,
        }
    }
}

/// How much idle memory is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cushion {
    /// As much as the peak of the last window wants again.
    Peak,
    /// As much as was in use at a time of late, and a small part more.
    Surplus,
    /// None.
    Nothing,
}

/// A goal of [`super::run`].
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// What it is for.
    pub kind: Kind,
    /// Who is told to have caused it.
    pub cause: Cause,
    /// The time it began, ns.
    pub now: u64,
    /// A number that rises with each goal: where scans begin, so that none is always first.
    pub turn: usize,
    /// Bytes wanted; `usize::MAX`: all that the goal lets go.
    pub bytes: usize,
    /// Scans of what is in use take size >> priority, at least one batch; 0: all of it.
    pub priority: u32,
}

impl Goal {
    /// The dearest backing whose free pages are released one by one.
    pub fn split(&self) -> Backing {
        match self.kind {
            Kind::Calm { .. } | Kind::Room | Kind::RoomForBlock | Kind::Shortage => Backing::Small,
            Kind::Rest | Kind::Pressure | Kind::Node { severe: false, .. } => Backing::SparseHuge,
            Kind::Severe | Kind::Asked | Kind::Node { severe: true, .. } => Backing::Huge,
        }
    }

    /// What is left idle.
    pub fn cushion(&self) -> Cushion {
        match self.kind {
            Kind::Calm { .. } => Cushion::Peak,
            Kind::Room => Cushion::Surplus,
            _ => Cushion::Nothing,
        }
    }

    /// Whether object caches give up their working sets too.
    pub fn empties_caches(&self) -> bool {
        matches!(self.kind, Kind::Severe | Kind::Asked | Kind::Shortage)
    }

    /// Whether CPUs' buckets of all caches are drained, not only of those that have been idle for long.
    pub fn drains_all(&self) -> bool {
        matches!(self.kind, Kind::Severe | Kind::Asked | Kind::Calm { drain: true, .. })
    }

    /// Whether it answers a shortage of the system's.
    pub fn is_pressure(&self) -> bool {
        matches!(self.kind, Kind::Pressure | Kind::Severe)
    }

    /// Whether it is the end of a calm window.
    pub fn is_calm(&self) -> bool {
        matches!(self.kind, Kind::Calm { .. })
    }

    /// The one node it is for; `None`: all.
    pub fn node(&self) -> Option<usize> {
        if let Kind::Node { node, .. } = self.kind { Some(node) } else { None }
    }

    /// Whether an allocation waits for it: then it waits for no batch of another's.
    pub fn is_for_allocation(&self) -> bool {
        matches!(self.kind, Kind::Room | Kind::RoomForBlock)
    }
}
