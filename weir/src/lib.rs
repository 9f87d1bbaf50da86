//! Weir on Linux: the platform, and the public Rust API.
#![cfg_attr(not(test), no_std)]

mod background;
mod global;
pub mod heap;
mod linux;
mod machine;
mod message;
pub mod os;
pub mod rseq;
mod settings;
mod thread;

pub use weir_core::{stats, tunables};

pub use global::Weir;
