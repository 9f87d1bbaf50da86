//! The lock that the table of registered runs is made of: another one under a model checker
//! (`crates/weir-models/tests/fixed_table.rs`).

pub use std::sync::{Mutex, MutexGuard, PoisonError};
