//! Entries on their way out, and how much is held. Eviction is for what comes and under pressure; removal and the end of an
//! entry's time are here too. So is the choice of how the policy is run.

pub mod choice;
pub mod evict;
pub mod expiry;
pub mod removal;
pub mod room;
pub mod scans;
