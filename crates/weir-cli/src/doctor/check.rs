//! A finding about a machine or a process.

use serde::Serialize;

/// How well something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Works fully.
    Ok,
    /// Missing or limited; Weir works without it.
    Limited,
    /// Weir cannot work at all.
    Fatal,
}

/// One property of the machine, or of a process.
#[derive(Debug, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub state: State,
    pub found: String,
    /// The effect: what Weir does about it, or what the user can do.
    pub effect: &'static str,
}

impl Check {
    /// One that works fully, or not.
    pub fn of(name: &'static str, good: bool, found: impl Into<String>, effect: &'static str) -> Self {
        Self { name, state: if good { State::Ok } else { State::Limited }, found: found.into(), effect }
    }

    /// One without which nothing works.
    pub fn fatal(name: &'static str, found: impl Into<String>, effect: &'static str) -> Self {
        Self { name, state: State::Fatal, found: found.into(), effect }
    }
}
