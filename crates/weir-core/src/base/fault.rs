//! What an audit finds wrong.

/// What an audit found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What does not add up.
    pub what: &'static str,
    /// The page, pageblock, class or count where it does not.
    pub at: usize,
}

/// `Err` unless `right`.
pub(crate) fn check(right: bool, what: &'static str, at: usize) -> Result<(), Fault> {
    if right { Ok(()) } else { Err(Fault { what, at }) }
}
