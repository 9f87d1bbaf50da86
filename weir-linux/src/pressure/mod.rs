//! Where memory pressure is heard of: PSI, cgroups of both versions, the service manager's watch.

pub mod answer;
pub mod cgroup;
pub mod groups;
pub mod memcg;
pub mod pressure_level;
pub mod pressure_watch;
pub mod psi;
pub mod readings;
pub mod sources;
pub mod wake;
