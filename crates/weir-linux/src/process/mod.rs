//! The process that the heap is in: its settings, its start, `fork`.

pub mod callbacks;
pub mod environment;
pub mod evictable_list;
mod exit_profile;
mod fork;
mod fork_freeze;
pub mod heap;
pub mod limit;
pub mod malloc;
pub mod pressure;
#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
mod stay_loaded;
