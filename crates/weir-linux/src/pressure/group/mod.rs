//! Control groups: which the process is in, their limits, use and events.

pub mod cgroup;
pub mod groups;
pub mod level_events_v1;
pub mod memcg;
