//! Weir's own threads.

pub mod at_work;
pub mod background;
pub mod callbacks;
pub mod changes;
pub mod finalizer;
mod libc_thread;
mod memory_owner;
pub mod node_workers;
mod raw_thread;
