//! Reclaim of a heap: when it runs, towards which goal, and what it remembers in between.

mod balance;
mod direct;
mod node;
mod parts;
pub mod pressure_response;
mod victims;

use super::Heap;
use crate::heap::view::view;
use crate::platform::Platform;

view! {
    /// Reclaim by the threads beside the program: the balancer, those that hear of pressure, and the program where it asks for it.
    pub struct Reclaim;
    /// Reclaim: goals, limits and pressure.
    fn reclaim;
}
