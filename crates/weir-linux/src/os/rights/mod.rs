//! What a thread may do: its user, groups and capabilities, and the program's filters.

pub mod credentials;
pub mod sandbox;
