//! A heap profile, as all formats are made from it.

use super::symbols::mappings::Mapping;
use crate::base::units::bytes;

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

    /// How many samples were taken, and how far apart they were; `None`: not known. They are farther apart than was set where
    /// blocks are larger than that, and where more samples would have taken too much time (`profile_percent`).
    pub fn pace(&self) -> Option<String> {
        let apart = self.total().allocated_bytes.checked_div(self.samples).filter(|_| self.mean_bytes > 0)?;
        let set = bytes(self.mean_bytes);
        let set = if apart / 2 > self.mean_bytes { format!(" ({set} was set)") } else { String::new() };
        Some(format!("{} samples, one each {} on average{set}", self.samples, bytes(apart)))
    }

    /// Bytes that are live beyond those at the beginning, bytes; `None`: not known.
    pub fn grown_bytes(&self) -> Option<i64> {
        let sum = || self.stacks.iter().fold(0i64, |sum, stack| sum.saturating_add(stack.grown_bytes));
        self.has_growth.then(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_far_apart_samples_were_and_not_how_far_they_were_to_be() {
        let of = |allocated_bytes, samples, mean_bytes| {
            let figures = Figures { allocated_bytes, ..Figures::default() };
            let stacks = vec![Stack { frames: vec![1], figures, grown_bytes: 0 }];
            Profile { stacks, samples, mean_bytes, ..Profile::default() }.pace()
        };
        assert_eq!(of(100 << 20, 190, 512 << 10).unwrap(), "190 samples, one each 538.9 KiB on average");
        let far = "133 samples, one each 2.1 MiB on average (64.0 KiB was set)";
        assert_eq!(of(284 << 20, 133, 64 << 10).unwrap(), far);
        assert_eq!((of(1, 0, 1), of(1, 1, 0)), (None, None));
    }
}
