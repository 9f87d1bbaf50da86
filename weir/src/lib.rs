//! Weir on Linux: the platform, and the public Rust API.
#![cfg_attr(not(test), no_std)]

mod background;
pub mod caches;
mod global;
pub mod heap;
mod linux;
mod machine;
mod message;
mod object_cache;
pub mod os;
pub mod rseq;
mod settings;
mod taker;
mod thread;

pub use weir_core::{stats, tunables};

pub use global::Weir;
pub use object_cache::{Builder, CacheBox, Kept, Mode, Moved, ObjectCache, Refused};

/// This process's parameters, to be read and set at any time.
///
/// ```
/// weir::process_tunables().set(b"limit", b"512M").unwrap();
/// assert_eq!(weir::process_tunables().limit.get(), 512 << 20);
/// ```
pub fn process_tunables() -> &'static tunables::Tunables {
    &linux::TUNABLES
}
