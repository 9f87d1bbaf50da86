//! Weir on Linux: the platform, and the public Rust API.
#![cfg_attr(not(test), no_std)]

pub mod os;

pub use weir_core::{stats, tunables};
