//! What every other part uses.

pub mod budget;
pub mod failure;
pub mod shares;
pub mod size;

pub use budget::{Budget, Permit};
pub use failure::Failure;
