//! Weir's own threads.

pub mod background;
mod background_loop;
pub mod callbacks;
pub mod changes;
mod figures;
pub mod finalizer;
mod libc_thread;
mod memory_owner;
pub mod node_workers;
mod raw_thread;
mod response;
pub mod steering;
mod suspension;
