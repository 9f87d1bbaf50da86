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

mod answer;
pub mod aside;
mod background;
pub mod caches;
mod fork;
mod frozen;
mod give_back;
mod global;
pub mod heap;
mod linux;
mod machine;
mod message;
mod node_worker;
mod object_cache;
pub mod os;
mod owner;
mod places;
pub mod rseq;
mod settings;
mod start;
mod stats_page;
mod step_aside;
mod sync;
mod taker;
mod thread;
mod unknown_settings;
mod weak;
pub mod zone;

pub use weir_core::{stats, trace, tunables};

pub use global::Weir;
pub use object_cache::{Builder, CacheBox, Kept, Mode, Moved, ObjectCache, Refused};
pub use start::{finish, init};
pub use step_aside::step_aside;

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
pub fn set_tunable(name: &[u8], value: &[u8]) -> Result<(), tunables::SettingError> {
    linux::TUNABLES.set(name, value)?;
    if name == b"report" {
        set_reporting(linux::TUNABLES.report.get() != 0);
    }
    background::wake();
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
    heap::HEAP.engine().set_reporting(on);
}
