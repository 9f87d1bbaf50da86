//! Faults that an audit finds.

/// Finding of an audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Description of what does not add up.
    pub what: &'static str,
    /// The page, pageblock, class or count where it does not.
    pub at: usize,
}

/// `Err` unless `right`.
pub(crate) fn check(right: bool, what: &'static str, at: usize) -> Result<(), Fault> {
    if right { Ok(()) } else { Err(Fault { what, at }) }
}
