//! Code that the harness and the programs that it measures share.

pub mod group;
pub mod random;
pub mod resp;
pub mod words;
