//! What is decided, by pure functions: no file, no clock, no network.

pub mod limits;
pub mod peaks;
pub mod quantity;
pub mod relief;
