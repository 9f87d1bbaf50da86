//! The process that the heap is in: its settings, its start, `fork`.

pub mod caches;
pub mod callbacks;
pub mod calls;
pub mod counted_calls;
mod environment;
pub mod evictable_list;
mod evictable_waits;
mod exit_profile;
mod fork;
mod fork_freeze;
pub mod heap;
pub mod limit;
pub mod page_pools;
pub mod pressure;
pub mod program_queue;
pub mod queue_fd;
pub mod reexec;
pub mod registration;
mod start;
mod unknown_settings;
