//! Costs of single calls: by size, with much that is live, and at worst.

pub mod big_heap;
pub mod latency;
pub mod sweep;
pub mod sweep_calls;
