//! Entries on their way out, and how much is held. Eviction is for what comes and under pressure; removal and the end of an
//! entry's time are here too. So is the choice of how the policy is run, and what moves what is left together.

pub mod choice;
pub mod evict;
pub mod expiry;
#[cfg(not(plain))]
pub mod gather;
pub mod removal;
pub mod room;
#[cfg(not(plain))]
pub mod rounds;
pub mod scans;
