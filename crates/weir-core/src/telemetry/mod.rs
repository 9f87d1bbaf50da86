//! Figures that a process tells about itself, and the parameters that steer it.

pub mod gauges;
pub mod histogram;
pub mod name;
pub mod stats;
pub mod tables;
pub mod trace;
pub mod tunables;
