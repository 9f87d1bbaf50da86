//! The sources of pressure that notify: which there are, and what is kept of each while it is open.

use crate::pressure::group::memcg::EventCounts;
use crate::pressure::psi::Growth;

/// A source that fires without a rate limit of its own is not listened to for so long after an event. Nothing is
/// lost: it stays readable.
pub(super) const MUTE_NS: u64 = 100_000_000;

/// A source that notifies. The order is that of the slots in [`super::Sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notifier {
    /// A thread of the program ended.
    Thread,
    /// A client of the control channel's wants something.
    Control,
    SystemStall,
    GroupStall,
    OwnEvents,
    TightestEvents,
    LowLevel,
    CriticalLevel,
    /// The highest ancestor that can be listened to. Memory is short somewhere below it, perhaps in the own group, or
    /// in the one that the process was moved to.
    Hint,
    Watch,
}

impl Notifier {
    /// Whether it tells of memory pressure.
    pub(super) fn is_of_pressure(self) -> bool {
        !matches!(self, Self::Thread | Self::Control)
    }

    /// Whether it is a group's, and so another one after a move.
    pub(super) fn is_of_group(self) -> bool {
        self.is_of_pressure() && !matches!(self, Self::SystemStall | Self::Watch)
    }
}

pub(super) const ALL: [Notifier; 10] = [
    Notifier::Thread,
    Notifier::Control,
    Notifier::SystemStall,
    Notifier::GroupStall,
    Notifier::OwnEvents,
    Notifier::TightestEvents,
    Notifier::LowLevel,
    Notifier::CriticalLevel,
    Notifier::Hint,
    Notifier::Watch,
];

/// A notifier's open descriptor, and what is kept with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub fd: i32,
    pub events: i16,
    pub has_input: bool,
    pub mute_until: u64,
    /// For how long the next event mutes it.
    pub mute_ns: u64,
    pub counts: EventCounts,
    /// For a pressure file, distinguishes a trigger's events from false ones.
    pub growth: Option<Growth>,
}

/// Nothing is open.
pub(super) const CLOSED: Slot = Slot {
    fd: -1,
    events: 0,
    has_input: false,
    mute_until: 0,
    mute_ns: MUTE_NS,
    counts: EventCounts { high: 0, max: 0, oom: 0 },
    growth: None,
};
