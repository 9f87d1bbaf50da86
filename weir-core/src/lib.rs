//! The engine of Weir.
#![cfg_attr(not(test), no_std)]
pub mod stats;
pub mod tunables;
