//! What a process tells about itself, and the parameters it is steered by.

pub mod gauges;
pub mod histogram;
pub mod stats;
pub mod tables;
pub mod trace;
pub mod tunables;
