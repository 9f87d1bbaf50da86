//! The process that the heap is in: its settings, its start, `fork`.

pub mod caches;
pub mod calls;
mod environment;
pub mod evictable_caches;
mod evictable_list;
mod fork;
mod fork_freeze;
pub mod heap;
pub mod reexec;
mod start;
mod unknown_settings;
