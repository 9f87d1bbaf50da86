//! The goals of reclaim: why, how far, how much. What differs between them is in this file and in [`super::order`], nowhere
//! else.

use crate::base::backing::Backing;
use crate::base::cause::Cause;
use crate::base::zone_class::ZoneClass;
use crate::policy::scan_priority;

/// A calm window that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Nothing was allocated or freed in it.
    pub quiet: bool,
    /// It is the first such: what CPUs and depots hold goes to the slabs and zones.
    pub drain: bool,
    /// What was used in so many windows is kept, this one included.
    pub windows: usize,
}

/// What reclaim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A calm window ends: what the working set does not need.
    Calm(Ended),
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
    /// A zone is low, and the node balancer reclaims for it.
    Balance {
        /// The zone.
        zone: ZoneClass,
    },
    /// NORMAL is below min, and an allocation reclaims a bounded amount by itself.
    Direct,
    /// An allocation would exceed `hard_limit`: all that can be released is, caches of the program's included.
    HardLimit,
}

/// How much idle memory is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cushion {
    /// As much as the peak of the last windows wants again.
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
    /// Whether dirty entries of caches may be written back; where not, only clean ones go.
    pub may_write: bool,
}

/// Which side reclaims: statistics tell the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A thread beside the program's.
    Balancer = 0,
    /// An allocation, for itself.
    Direct = 1,
}

impl Goal {
    /// A goal of `kind`, which takes all that the kind lets go; of what is in use as much as the kind says.
    pub fn new(kind: Kind, cause: Cause, now: u64, turn: usize) -> Self {
        let priority = match kind {
            Kind::Severe => scan_priority::LAST_BOOSTED,
            Kind::Asked | Kind::HardLimit => 0,
            _ => scan_priority::FIRST,
        };
        Self { kind, cause, now, turn, bytes: usize::MAX, priority, may_write: true }
    }

    /// The side that reclaims.
    pub fn side(&self) -> Side {
        let is_direct = self.is_for_allocation() || matches!(self.kind, Kind::Shortage | Kind::HardLimit);
        if is_direct { Side::Direct } else { Side::Balancer }
    }

    /// The class of zones that memory is wanted of: what lies in others is no use.
    pub fn zone(&self) -> ZoneClass {
        if let Kind::Balance { zone } = self.kind { zone } else { ZoneClass::Normal }
    }

    /// The dearest backing whose free pages are released one by one.
    pub fn split(&self) -> Backing {
        match self.kind {
            Kind::Calm(_) | Kind::Room | Kind::RoomForBlock | Kind::Shortage | Kind::Direct => Backing::Small,
            Kind::Rest | Kind::Pressure | Kind::Balance { .. } | Kind::Node { severe: false, .. } => {
                Backing::SparseHuge
            }
            Kind::Severe | Kind::Asked | Kind::HardLimit | Kind::Node { severe: true, .. } => Backing::Huge,
        }
    }

    /// What is left idle.
    pub(crate) fn cushion(&self) -> Cushion {
        match self.kind {
            Kind::Calm(_) => Cushion::Peak,
            Kind::Room => Cushion::Surplus,
            _ => Cushion::Nothing,
        }
    }

    /// Whether object caches give up their working sets too: before much of what the program uses is evicted, and where it
    /// uses none of them.
    pub(crate) fn empties_caches(&self) -> bool {
        match self.kind {
            Kind::Severe | Kind::Asked | Kind::Shortage | Kind::HardLimit => true,
            Kind::Calm(ended) => ended.drain,
            Kind::Balance { .. } => self.priority < scan_priority::LAST_BOOSTED,
            _ => false,
        }
    }

    /// Whether CPUs' buckets of all caches are drained, not only of those that have been idle for long.
    pub(crate) fn drains_all(&self) -> bool {
        matches!(self.kind, Kind::Severe | Kind::Asked | Kind::HardLimit | Kind::Calm(Ended { drain: true, .. }))
    }

    /// Whether it answers a shortage of the system's.
    pub(crate) fn is_pressure(&self) -> bool {
        matches!(self.kind, Kind::Pressure | Kind::Severe)
    }

    /// Whether it is the end of a calm window.
    pub(crate) fn is_calm(&self) -> bool {
        matches!(self.kind, Kind::Calm(_))
    }

    /// The one node it is for; `None`: all.
    pub fn node(&self) -> Option<usize> {
        if let Kind::Node { node, .. } = self.kind { Some(node) } else { None }
    }

    /// Whether an allocation waits for it: then it waits for no batch of another's.
    pub(crate) fn is_for_allocation(&self) -> bool {
        matches!(self.kind, Kind::Room | Kind::RoomForBlock | Kind::Direct)
    }
}
