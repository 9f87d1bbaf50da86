//! What a process tells about itself, and the parameters it is steered by.

pub mod stats;
pub mod trace;
pub mod tunables;
