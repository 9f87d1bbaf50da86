//! Weir: a memory allocator for Linux whose caches give way when memory is short.
//!
//! | wanted | see |
//! |---|---|
//! | a global allocator | [`Weir`] |
//! | a cache of objects of one type | [`ObjectCache`] |
//! | memory of another kind, in pages: files, huge pages, locked | [`zone`] |
//! | what is used and idle; giving back now | [`heap::usage`], [`heap::trim`] |
//! | settings, while the program runs | [`set_tunable`], [`tunables::TABLE`] |
//! | reports off and on | [`set_reporting`] |
//!
//! ```
//! #[global_allocator]
//! static HEAP: weir::Weir = weir::Weir;
//!
//! let words: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
//! drop(words);
//! // What is idle goes back by itself within about a second; or at once:
//! weir::heap::trim();
//! ```
#![cfg_attr(not(test), no_std)]

pub mod caches;
mod global;
pub mod heap;
mod object_cache;
pub mod zone;

pub use weir_core::{stats, trace, tunables};

pub use global::Weir;
pub use object_cache::{Builder, CacheBox, Kept, Mode, Moved, ObjectCache, Refused};

use weir_linux::platform::statics::TUNABLES;
use weir_linux::process::heap::{BACKGROUND, HEAP};

/// This process's parameters. What is set here counts from the next decision on; a background thread that sleeps
/// decides nothing, so [`set_tunable`] is the way to set one.
pub fn process_tunables() -> &'static tunables::Tunables {
    &TUNABLES
}

/// Sets one of this process's parameters by name, at any time, and has it looked at now.
///
/// ```
/// weir::set_tunable(b"limit", b"512M").unwrap();
/// assert_eq!(weir::process_tunables().limit.get(), 512 << 20);
/// ```
pub fn set_tunable(name: &[u8], value: &[u8]) -> Result<(), tunables::SetError> {
    TUNABLES.set(name, value)?;
    if name == b"report" {
        set_reporting(TUNABLES.report.get() != 0);
    }
    BACKGROUND.wake();
    Ok(())
}

/// Switches giving memory back on or off. When this returns after switching off, the batch that was under way has ended
/// and there will be no other: what is free stays resident, for a program that is about to pin memory, or to measure.
///
/// ```
/// weir::set_reporting(false);
/// assert!(!weir::heap::trim());
/// weir::set_reporting(true);
/// ```
pub fn set_reporting(on: bool) {
    HEAP.engine().set_reporting(on);
}
