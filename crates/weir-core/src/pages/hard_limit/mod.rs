//! The hard limit of a heap, and what of its pages counts against it.

mod charge;
mod limit;

pub use limit::{HardLimit, Hold};
