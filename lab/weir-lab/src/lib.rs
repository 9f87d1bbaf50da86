//! Code that the harness and the programs that it measures share: random numbers, settings, Redis's protocol, memory
//! groups.

pub mod common;
