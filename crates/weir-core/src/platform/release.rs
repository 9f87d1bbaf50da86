//! Free memory is released to what is below: the kernel, a file, a hypervisor.

use crate::base::run::Run;
use crate::base::units::PAGE;

/// Contents of released memory when it is touched again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Zero bytes.
    Zero,
    /// Zero bytes, or what was there before, or anything else.
    Undefined,
}

/// Outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// How many of the runs were taken, from the first.
    pub runs: usize,
    /// Contents of the released runs from now on.
    pub contents: Contents,
    /// Why the next one was not, in the platform's own numbers (Linux: errno). 0: all were taken, or the cause is unknown.
    pub error: u32,
}

/// The system that released memory goes to.
pub trait Host: Sync {
    /// Takes the memory of `runs`, which are not used until this returns. In `calm` times there is no hurry: the cheapest
    /// way will do, even if the memory is only marked as free to take. Never called under a lock that an allocation may
    /// want ([`super::rank`]).
    fn release(&self, runs: &[Run], calm: bool) -> Released;

    /// The least that can be released, bytes: a power of two from a page to 256 KiB, or a whole pageblock of
    /// [`crate::base::units::PAGEBLOCK`] bytes. Aligned blocks of so many bytes get their memory whole as well, at the first touch of
    /// any byte. Mappings begin and end at multiples of it. Where it is a pageblock, nothing is released in part.
    fn release_unit(&self) -> usize {
        PAGE
    }
}
