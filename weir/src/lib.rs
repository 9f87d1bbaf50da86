//! Weir on Linux: the platform, and the public Rust API.
#![no_std]

pub use weir_core::{stats, tunables};
