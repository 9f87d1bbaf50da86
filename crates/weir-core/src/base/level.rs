//! Pressure: how bad it is.

/// A level of memory pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Memory is plentiful.
    #[default]
    None,
    /// Somebody waits for memory, or soon will: idle memory goes back.
    Some,
    /// Somebody is being hurt: everything idle goes back, whatever it costs to get it again.
    Severe,
}
