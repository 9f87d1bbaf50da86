//! Reclaim of a heap: when it runs, towards which goal, and what it remembers in between.

mod balance;
mod direct;
mod node;
mod parts;
pub mod pressure;

use super::Heap;
use crate::platform::Platform;

/// What the threads beside the program do: the balancer, those that hear of pressure, and the program where it asks for it.
pub struct Reclaim<'a, P: Platform> {
    pub(super) heap: &'a Heap<P>,
}

impl<P: Platform> Heap<P> {
    /// Reclaim: goals, limits and pressure.
    #[inline(always)]
    pub fn reclaim(&self) -> Reclaim<'_, P> {
        Reclaim { heap: self }
    }
}
