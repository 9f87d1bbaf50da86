//! The part of the command that opens files of processes.

#[path = "../../../crates/weir-cli/src/processes/child.rs"]
pub mod child;
#[path = "../../../crates/weir-cli/src/processes/regular.rs"]
pub mod regular;
