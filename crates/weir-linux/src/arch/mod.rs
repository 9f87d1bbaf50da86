//! All that knows a processor: a folder each, with the same names in it. A file is a concern.
//!
//! | file | what is in it |
//! |---|---|
//! | `system_call` | the instruction, and in which registers its arguments are |
//! | `thread` | the thread pointer, the library's thread-local block, how a thread of no library begins and ends |
//! | `catch` | a call of code that may unwind, and where it goes on then |
//! | `signal` | where a signal's handler returns to; what its frame says of a wrong access; a call on another stack |
//! | `page` | how long the kernel's pages are |
//! | `registers` | a frame's registers by the numbers that unwind tables use; the library's own code |
//! | `sections` | restartable sections: pops from and pushes to a CPU's buckets |
//!
//! `words` is the same on all: what sections read.

pub mod words;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

// The other processor's part that needs none of it.
#[cfg(all(test, not(target_arch = "aarch64")))]
#[path = "aarch64/syndrome.rs"]
mod syndrome;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
