//! The answer of pages, where there are none.

use crate::platform::Refused;

/// There are no pages: the system refused memory, or no run is long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

impl From<Refused> for Short {
    fn from(_: Refused) -> Self {
        Self
    }
}
