//! All that knows a processor: a folder each, with the same names in it.
//!
//! | file | what is in it |
//! |---|---|
//! | `fast_path` | `malloc` and `free` when nothing is missing, by hand |
//! | `jump` | from one form of C++'s operators to another, and the first function of a name |
//! | `throw` | the frames through which exceptions of a failed `new` pass |
//! | `dlopen` | how `dlopen` goes on to libc's, but in static programs, which have libc's alone |
//! | `panic` | an instruction that ends the process |
//!
//! `frames` is the same on all: what `throw` is made of.

pub mod frames;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
