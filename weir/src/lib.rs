//! Weir on Linux: the platform, and the public Rust API.
#![cfg_attr(not(test), no_std)]

mod background;
mod give_back;
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

/// This process's parameters, to be read and set at any time.
///
/// ```
/// weir::process_tunables().set(b"limit", b"512M").unwrap();
/// assert_eq!(weir::process_tunables().limit.get(), 512 << 20);
/// ```
pub fn process_tunables() -> &'static tunables::Tunables {
    &linux::TUNABLES
}
