//! A heap profile, as all formats are made from it.

use super::symbols::mappings::Mapping;

/// Allocations of one stack or of all: estimates from samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub allocated_objects: u64,
    pub allocated_bytes: u64,
    pub live_objects: u64,
    pub live_bytes: u64,
}

/// By what stacks are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    Live,
    Allocated,
}

impl Measure {
    /// The bytes by this measure.
    pub fn bytes(self, figures: &Figures) -> u64 {
        if self == Self::Live { figures.live_bytes } else { figures.allocated_bytes }
    }

    /// The objects by this measure.
    pub fn objects(self, figures: &Figures) -> u64 {
        if self == Self::Live { figures.live_objects } else { figures.allocated_objects }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        if self == Self::Live { "live" } else { "allocated" }
    }
}

/// A call stack with its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Return addresses, the innermost first.
    pub frames: Vec<u64>,
    pub figures: Figures,
    /// Bytes that are live beyond those when the profile began, bytes.
    pub grown_bytes: i64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The subject: a process with its name, or a file.
    pub subject: String,
    pub stacks: Vec<Stack>,
    /// The executable mappings of the process.
    pub mappings: Vec<Mapping>,
    /// Mean of the bytes between two samples; 0: not known.
    pub mean_bytes: u64,
    /// Samples taken in all; 0: not known.
    pub samples: u64,
    /// When it began, ns since 1970; 0: not known.
    pub began_ns: u64,
    /// How long it took; 0: not known.
    pub duration_ns: u64,
    /// Whether [`Stack::grown_bytes`] is known.
    pub has_growth: bool,
    /// Notes that a reader needs to read the figures right, a sentence each.
    pub notes: Vec<String>,
}

impl Figures {
    /// Adds another stack's.
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.allocated_objects, other.allocated_objects),
            (&mut self.allocated_bytes, other.allocated_bytes),
            (&mut self.live_objects, other.live_objects),
            (&mut self.live_bytes, other.live_bytes),
        ] {
            *sum = sum.saturating_add(part);
        }
    }

    /// Whether nothing was allocated, and nothing is live.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Profile {
    /// The sum over all stacks.
    pub fn total(&self) -> Figures {
        let mut total = Figures::default();
        self.stacks.iter().for_each(|stack| total.add(&stack.figures));
        total
    }

    /// Bytes that are live beyond those at the beginning, bytes; `None`: not known.
    pub fn grown_bytes(&self) -> Option<i64> {
        let sum = || self.stacks.iter().fold(0i64, |sum, stack| sum.saturating_add(stack.grown_bytes));
        self.has_growth.then(sum)
    }
}
