//! The surroundings of a process: its descendants, its cgroup, the machine's pressure, the page cache of its files.

pub mod cgroup;
pub mod family;
pub mod group;
pub mod page_cache;
pub mod stall;
