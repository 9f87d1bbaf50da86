//! Where memory pressure is heard of: PSI, cgroups of both versions, the service manager's watch.

pub mod events;
pub mod group;
pub mod psi;
pub mod sources;
pub mod systemd_watch;
pub mod wake;
