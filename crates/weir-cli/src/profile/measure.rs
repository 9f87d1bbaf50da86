//! By what stacks are ordered: what is live, or what was allocated.

use super::data::Figures;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    Live,
    Allocated,
}

impl Measure {
    /// Its bytes.
    pub fn bytes(self, figures: &Figures) -> u64 {
        match self {
            Self::Live => figures.live_bytes,
            Self::Allocated => figures.allocated_bytes,
        }
    }

    /// Its objects.
    pub fn objects(self, figures: &Figures) -> u64 {
        match self {
            Self::Live => figures.live_objects,
            Self::Allocated => figures.allocated_objects,
        }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Allocated => "allocated",
        }
    }
}
