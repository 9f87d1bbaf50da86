//! Looking into a running process that has Weir: its page of statistics, and its control channel.

pub mod asked;
pub mod control;
pub mod list;
pub mod locate;
pub mod memory_reader;
pub mod page;
