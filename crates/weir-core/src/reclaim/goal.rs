//! The goals of reclaim: why, how far, how much. All that differs between them is one row each of the table here; the order
//! of the steps is in [`super::order`].

use super::step::{Step, Step::*, Steps};
use crate::base::backing::Backing;
use crate::base::cause::Cause;
use crate::base::time::Time;
use crate::base::units::Bytes;
use crate::base::zone_class::ZoneClass;
use crate::policy::scan_priority::{FIRST, LAST_BOOSTED};

/// A calm window that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Nothing was allocated or freed in it.
    pub quiet: bool,
    /// The window is the first quiet one: what CPUs and depots hold goes to the slabs and zones.
    pub first_quiet: bool,
    /// Windows over which what was used is kept, this one included.
    pub windows: usize,
}

/// Reasons for reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A calm window ends: what the working set does not need.
    Calm,
    /// The first quiet window ends: what CPUs and depots hold, too.
    FirstQuiet,
    /// The program is at rest and its memory is limited. A limit without swap kills the moment it is met, before anybody
    /// could be told: so what calm windows keep goes too.
    Rest,
    /// Memory is short.
    Pressure,
    /// Memory is so short that tasks suffer.
    Severe,
    /// The program asked for all that is idle (`malloc_trim`).
    Purge,
    /// Memory is short, and one node's free pages are released by that node's worker.
    Node,
    /// [`Kind::Node`] at the severe level.
    SevereNode,
    /// An allocation was refused memory: caches give up all they hold, to the zones.
    Shortage,
    /// A program's pages became resident beyond what peaks explain: what others keep idle goes in exchange.
    Room,
    /// [`Kind::Room`] for a block mapped on its own, which cannot use what is idle in zones.
    RoomForBlock,
    /// [`Kind::RoomForBlock`] in a program that comes back for what is released: what it uses in zones by turns stays.
    RoomForBlockAgain,
    /// NORMAL is low, and the node balancer reclaims for it.
    Balance,
    /// A zone that is not elastic is low, in which what is free is no more free for being released.
    BalanceFixed,
    /// NORMAL is below min, and an allocation reclaims a bounded amount by itself.
    Direct,
    /// An allocation would exceed `hard_limit`: all that can be released is, caches of the program's included.
    HardLimit,
}

/// How much idle memory is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cushion {
    /// So much as the peak of the last windows wants again.
    Peak,
    /// So much as was in use at a time of late, and a small part more.
    Surplus,
    /// Nothing is left.
    Nothing,
}

/// Buckets of CPUs that a goal drains, where it takes that step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drains {
    /// Runs.
    Runs,
    /// Buckets of caches that have been idle for long.
    Idle,
    /// Runs, and buckets of idle caches.
    IdleAndRuns,
    /// All.
    All,
    /// All, and their ceilings sink first: CPUs are busy, and stopped as shortly as can be.
    AllAndSink,
}

/// Pages that a goal wants of page pools, where it takes that step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pools {
    /// Idle pages above `max_idle_pages`, unless a thread of the program's is the owner.
    Surplus,
    /// Idle pages, unless a thread of the program's is the owner.
    Idle,
    /// [`Pools::Idle`] for a pressure event, which is counted.
    Squeeze,
    /// Idle pages, whoever the owner is.
    IdleOfAll,
}

/// Urgency of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing.
    None,
    /// A shortage of the system's, which all have heard of.
    Pressure,
    /// A zone is low, which is an event by itself.
    LowZone,
    /// An allocation would fail.
    Failure,
}

/// A goal's constants.
pub(crate) struct Row {
    kind: Kind,
    /// Steps that are taken, in the order of [`super::order::ORDER`].
    pub steps: Steps,
    pub cushion: Cushion,
    /// The dearest backing whose free pages are released one by one.
    pub splits: Backing,
    /// Depots give up their working sets too at a priority below this one.
    empties_below: u32,
    pub drains: Drains,
    pub pools: Pools,
    pub need: Need,
    /// An allocation waits for it, so that it waits for no batch of another's.
    pub is_awaited: bool,
    /// Scans of what is in use take size >> priority.
    priority: u32,
}

/// Depots never give up their working sets; and always.
const NEVER: u32 = 0;
const ALWAYS: u32 = u32::MAX;

/// What is idle, of each kind, and metadata of it.
const IDLE: Steps = Steps::of(&[
    Retained,
    Blocks,
    Pools,
    Buckets,
    StaleCaches,
    BlocksAgain,
    WarmCaches,
    Moves,
    Runs,
    SlabPages,
    Filled,
    Metadata,
]);

/// What is in use, and what that leaves in caches.
const IN_USE: [Step; 3] = [Evict, Shrink, CachesAgain];

const CALM: Row = Row {
    kind: Kind::Calm,
    steps: IDLE.with(&[OldMetadata, Merge, Sparse, Mappings]),
    cushion: Cushion::Peak,
    splits: Backing::Small,
    empties_below: NEVER,
    drains: Drains::Idle,
    pools: Pools::Surplus,
    need: Need::None,
    is_awaited: false,
    priority: FIRST,
};

const PRESSURE: Row = Row {
    kind: Kind::Pressure,
    steps: IDLE.with(&[Refused]),
    cushion: Cushion::Nothing,
    splits: Backing::SparseHuge,
    drains: Drains::IdleAndRuns,
    pools: Pools::Squeeze,
    need: Need::Pressure,
    ..CALM
};

/// [`PRESSURE`] where pages are merged too: tasks suffer, or the program asked for it.
const HARDEST: Row =
    Row { steps: IDLE.with(&[Refused, Merge]), splits: Backing::Huge, empties_below: ALWAYS, ..PRESSURE };

const NODE: Row = Row { kind: Kind::Node, steps: Steps::of(&[Blocks, Runs, SlabPages]), need: Need::None, ..PRESSURE };

const ROOM: Row = Row {
    kind: Kind::Room,
    steps: Steps::of(&[Retained, Blocks, Runs]),
    cushion: Cushion::Surplus,
    is_awaited: true,
    ..CALM
};

const BALANCE: Row = Row {
    kind: Kind::Balance,
    steps: IDLE.without(&[Metadata]).with(&IN_USE),
    // A page that stays behind helps nobody: more would be evicted, or the program be killed.
    splits: Backing::Huge,
    // Before much of what the program uses is evicted, and where it uses none.
    empties_below: LAST_BOOSTED,
    need: Need::LowZone,
    ..PRESSURE
};

/// All goals, one row each.
static GOALS: [Row; 16] = [
    CALM,
    Row { kind: Kind::FirstQuiet, empties_below: ALWAYS, drains: Drains::All, ..CALM },
    Row { kind: Kind::Rest, steps: IDLE.with(&[Merge, Mappings]), pools: Pools::Idle, need: Need::None, ..PRESSURE },
    PRESSURE,
    Row { kind: Kind::Severe, drains: Drains::AllAndSink, priority: LAST_BOOSTED, ..HARDEST },
    Row {
        kind: Kind::Purge,
        steps: HARDEST.steps.with(&[Mappings]),
        drains: Drains::All,
        pools: Pools::IdleOfAll,
        need: Need::None,
        priority: 0,
        ..HARDEST
    },
    NODE,
    Row { kind: Kind::SevereNode, splits: Backing::Huge, ..NODE },
    Row {
        kind: Kind::Shortage,
        steps: Steps::of(&[Retained, Pools, Buckets, StaleCaches, WarmCaches, Evict, Shrink, CachesAgain]),
        splits: Backing::Small,
        empties_below: ALWAYS,
        drains: Drains::Runs,
        pools: Pools::IdleOfAll,
        need: Need::Failure,
        ..PRESSURE
    },
    ROOM,
    Row { kind: Kind::RoomForBlock, steps: Steps::of(&[Blocks, Runs]), cushion: Cushion::Nothing, ..ROOM },
    Row { kind: Kind::RoomForBlockAgain, steps: Steps::of(&[Blocks, Runs]), ..ROOM },
    BALANCE,
    Row { kind: Kind::BalanceFixed, steps: Steps::of(&[Evict, Shrink]), ..BALANCE },
    Row {
        kind: Kind::Direct,
        steps: BALANCE.steps.without(&[Buckets, Moves, SlabPages]),
        empties_below: NEVER,
        is_awaited: true,
        ..BALANCE
    },
    Row {
        kind: Kind::HardLimit,
        steps: IDLE.without(&[Moves]).with(&[Refused]).with(&IN_USE),
        splits: Backing::Huge,
        empties_below: ALWAYS,
        drains: Drains::All,
        pools: Pools::IdleOfAll,
        need: Need::Failure,
        priority: 0,
        ..PRESSURE
    },
];

const _: () = {
    let mut at = 0;
    while at < GOALS.len() {
        assert!(GOALS[at].kind as usize == at, "a goal in another's row");
        at += 1;
    }
};

/// A goal of [`super::run`].
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Reason.
    pub kind: Kind,
    /// Who is told to have caused it.
    pub cause: Cause,
    /// The time it began, ns.
    pub now: Time,
    /// A number that rises with each goal: where scans begin, so that none is always first.
    pub turn: usize,
    /// How much is wanted; [`Bytes::MAX`]: all that the goal lets go.
    pub bytes: Bytes,
    /// Scans of what is in use take size >> priority, at least one batch; 0: all of it.
    pub priority: u32,
    /// Whether memory is short for those who are asked; where not, others are short, and the scan is a mild one.
    pub is_short: bool,
    /// The calm window that ends, at the end of one.
    pub ended: Option<Ended>,
    /// The NUMA node it is for, by one of its parts; `None`: all.
    pub node: Option<usize>,
    /// The class of zones that memory is wanted of: what lies in others is no use.
    pub zone: ZoneClass,
    /// The number of the one zone of the program's own that it is wanted of; 0: all of the class.
    pub zone_number: u64,
}

/// Which side reclaims: statistics tell the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A thread beside the program's.
    Balancer = 0,
    /// An allocation, for itself.
    Direct = 1,
}

impl Kind {
    /// The goal of the node balancer that reclaims for zones of class `zone`.
    pub(crate) fn balance(zone: ZoneClass) -> Self {
        if zone == ZoneClass::Normal { Self::Balance } else { Self::BalanceFixed }
    }

    pub(crate) fn row(self) -> &'static Row {
        &GOALS[self as usize]
    }
}

impl Goal {
    /// A goal of `kind`, which takes all that the kind lets go; of what is in use as much as the kind says.
    pub(crate) fn new(kind: Kind, cause: Cause, now: Time, turn: usize) -> Self {
        let (bytes, priority) = (Bytes::MAX, kind.row().priority);
        let (zone, zone_number) = (ZoneClass::Normal, 0);
        Self { kind, cause, now, turn, bytes, priority, is_short: true, ended: None, node: None, zone, zone_number }
    }

    /// Constants of the goal.
    pub(crate) fn row(&self) -> &'static Row {
        self.kind.row()
    }

    /// Whether object caches give up their working sets too.
    pub(crate) fn empties_caches(&self) -> bool {
        self.priority < self.row().empties_below
    }

    /// Whether it answers a shortage of the system's.
    pub(crate) fn is_pressure(&self) -> bool {
        self.row().need == Need::Pressure
    }

    /// Whether it is the end of a calm window.
    pub(crate) fn is_calm(&self) -> bool {
        self.row().cushion == Cushion::Peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reclaim::order::ORDER;

    #[test]
    fn goals_take_steps_of_the_order_and_all_of_them() {
        for row in &GOALS {
            assert_eq!(row.steps.without(&ORDER), Steps::of(&[]), "{:?}", row.kind);
        }
        assert!(ORDER.iter().all(|&step| GOALS.iter().any(|row| row.steps.has(step))), "a step of no goal");
    }

    #[test]
    fn severe_pressure_takes_four_times_as_much_of_what_is_in_use() {
        let of = |kind| Goal::new(kind, Cause::Pressure, Time::ZERO, 0).priority;
        assert_eq!((of(Kind::Pressure), of(Kind::Severe), of(Kind::Purge)), (FIRST, FIRST - 2, 0));
    }

    #[test]
    fn what_calm_windows_keep_goes_only_where_more_is_wanted() {
        for row in &GOALS {
            let is_urgent = row.need != Need::None;
            // What is in use goes where an allocation or a zone lacks memory, and nowhere else.
            let takes_in_use = matches!(row.need, Need::LowZone | Need::Failure);
            assert_eq!(row.steps.has(Evict), takes_in_use, "{:?}", row.kind);
            assert!(!is_urgent || row.cushion == Cushion::Nothing, "{:?}", row.kind);
            // Huge pages in good use are split where tasks suffer, all is wanted, or what is in use would go in their place.
            let splits = matches!(row.kind, Kind::Severe | Kind::SevereNode | Kind::Purge | Kind::HardLimit)
                || row.need == Need::LowZone;
            assert_eq!(row.splits == Backing::Huge, splits, "{:?}", row.kind);
        }
    }
}
