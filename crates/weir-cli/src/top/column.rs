//! What processes can be sorted by.

use super::sample::Process;
use std::cmp::{Ordering, Reverse};

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Pid,
    Resident,
    Live,
    Idle,
    Fragmented,
    NotWeirs,
    Released,
    Command,
}

impl Column {
    /// In the order of the table.
    pub const ALL: [Self; 8] = [
        Self::Pid,
        Self::Resident,
        Self::Live,
        Self::Idle,
        Self::Fragmented,
        Self::NotWeirs,
        Self::Released,
        Self::Command,
    ];

    /// Its head.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pid => "PID",
            Self::Resident => "RES",
            Self::Live => "LIVE",
            Self::Idle => "IDLE",
            Self::Fragmented => "FRAG",
            Self::NotWeirs => "OTHER",
            Self::Released => "RELEAS",
            Self::Command => "COMMAND",
        }
    }

    /// What it is, for the menu.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Pid => "process number",
            Self::Resident => "resident set",
            Self::Live => "in use by the program",
            Self::Idle => "free, can be released",
            Self::Fragmented => "free, beside objects in use",
            Self::NotWeirs => "resident, not Weir's",
            Self::Released => "released since the start",
            Self::Command => "name of the program",
        }
    }

    /// Its bytes; none: the column has none, or the process has no Weir, or one of which the parts are not
    /// known (yet).
    pub fn bytes(self, process: &Process) -> Option<u64> {
        let memory =
            process.weir.as_ref().map(|weir| &weir.memory).filter(|it| it.measured_ns_ago.is_some() && !it.is_stale);
        match self {
            Self::Resident => Some(process.resident_bytes),
            Self::Live => memory.map(|memory| memory.live_bytes),
            Self::Idle => memory.map(|memory| memory.idle_bytes),
            Self::Fragmented => memory.map(|memory| memory.fragmented_bytes),
            Self::NotWeirs => memory.map(|memory| memory.not_weirs_bytes),
            Self::Released => process.weir.as_ref().map(|_| process.released_bytes()),
            Self::Pid | Self::Command => None,
        }
    }

    /// The order of two processes: bytes from the most on, numbers and names from the least on.
    pub fn compare(self, a: &Process, b: &Process) -> Ordering {
        match self {
            Self::Pid => a.pid.cmp(&b.pid),
            Self::Command => a.command.cmp(&b.command).then(a.pid.cmp(&b.pid)),
            _ => Reverse(self.bytes(a)).cmp(&Reverse(self.bytes(b))).then(a.pid.cmp(&b.pid)),
        }
    }
}
