//! The part of `weir profile` that reads object files.

#[path = "../../../crates/weir-cli/src/profile/data.rs"]
pub mod data;
#[path = "../../../crates/weir-cli/src/profile/symbols/mod.rs"]
pub mod symbols;
