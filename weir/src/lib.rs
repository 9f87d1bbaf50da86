//! Weir on Linux: the platform, and the public Rust API.
#![cfg_attr(not(test), no_std)]

mod background;
mod fork;
mod global;
pub mod heap;
mod linux;
mod machine;
mod message;
pub mod os;
pub mod rseq;
mod settings;
mod start;
mod thread;
mod weak;

pub use weir_core::{stats, tunables};

pub use global::Weir;
pub use start::init;

/// This process's parameters. What is set here counts from the next decision on; a background thread that sleeps
/// decides nothing, so [`set_tunable`] is the way to set one.
pub fn process_tunables() -> &'static tunables::Tunables {
    &linux::TUNABLES
}

/// Sets one of this process's parameters by name, at any time, and has it looked at now.
///
/// ```
/// weir::set_tunable(b"limit", b"512M").unwrap();
/// assert_eq!(weir::process_tunables().limit.get(), 512 << 20);
/// ```
pub fn set_tunable(name: &[u8], value: &[u8]) -> Result<(), tunables::SetError> {
    linux::TUNABLES.set(name, value)?;
    background::wake();
    Ok(())
}
