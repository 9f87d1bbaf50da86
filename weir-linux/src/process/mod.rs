//! The process that the heap is in: its settings, its start, `fork`.

pub mod caches;
pub mod environment;
pub mod fork;
pub mod frozen;
pub mod heap;
pub mod start;
pub mod step_aside;
pub mod unknown_settings;
