//! Processes that share a machine's memory: one that goes idle after a peak, and those that need what it gives back.

pub mod hog;
pub mod neighbour;
pub mod swing;
