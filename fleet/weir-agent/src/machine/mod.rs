//! This machine: its groups and processes, read.

pub mod figures;
pub mod groups;
pub mod look;
pub mod place;
pub mod rights;
pub mod shortage;
