//! A profile as each format has it.

pub mod folded;
mod messages;
pub mod pprof;
pub mod text;
