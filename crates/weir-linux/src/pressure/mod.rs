//! Where memory pressure is heard of: PSI, cgroups of both versions, the service manager's watch.

pub mod cgroup;
pub mod events;
pub mod groups;
pub mod level_events_v1;
pub mod memcg;
mod notifiers;
pub mod psi;
pub mod readings;
pub mod room;
pub mod sources;
pub mod systemd_watch;
pub mod wake;
