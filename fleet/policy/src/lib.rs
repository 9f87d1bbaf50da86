//! What memory a container should have, and when that is changed: pure functions, without a file, a clock or a network.
//!
//! The agent acts by them, and the simulation of a fleet (E16) runs them as they are.

pub mod limits;
pub mod peaks;
pub mod quantity;
