//! Entries: the block of one, what lies in it and where, and who holds it.

pub mod bytes;
pub mod header;
pub mod hold;
pub mod place;
pub mod typed;
pub mod victims;
