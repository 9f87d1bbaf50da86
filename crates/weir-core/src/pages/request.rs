//! Purposes of a request for pages, and the answer where there are none.

use crate::platform::Refused;

/// There are no pages: the system refused memory, or no run is long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

impl From<Refused> for Short {
    fn from(_: Refused) -> Self {
        Self
    }
}

// What pages are taken for.

/// Purposes that pages are taken for. Slabs are small and stay, runs come and go and grow. Where they lie side by side,
/// a run that moves leaves a hole with a slab in it, too short for the next. So each has pageblocks of its own as far
/// as that costs no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// One large block.
    Run = 0,
    /// Equal objects.
    Slab = 1,
}
