//! Entries on their way in: blocks that are filled, and values that one thread or task computes while others wait.

pub mod compute;
pub mod flight;
pub mod fresh;
pub mod landing;
pub mod table;
pub mod waiters;
pub mod waiting;
