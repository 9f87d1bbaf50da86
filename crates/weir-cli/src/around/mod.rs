//! The surroundings of a process: its descendants, its cgroup and whether it is frozen, its mounts, the machine's pressure, files
//! in the page cache.

pub mod cgroup;
pub mod family;
pub mod frozen;
pub mod group;
pub mod mounts;
pub mod page_cache;
pub mod stall;
