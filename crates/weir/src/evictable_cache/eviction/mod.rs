//! Entries on their way out: how much is held, eviction for what comes and under pressure, removal, the end of an entry's time,
//! and the choice of how the policy is run.

pub mod choice;
pub mod evict;
pub mod expiry;
pub mod removal;
pub mod room;
