//! The Linux below Weir, by raw system calls: no errno, no TLS, no allocation, no libc.
//!
//! Code here runs inside `malloc`, in a background thread that libc has no record of, and in forked children. So it may
//! use nothing that libc keeps state for.

pub mod catch;
pub mod clock;
pub mod fd;
pub mod file;
pub mod futex;
pub mod mman;
pub mod page;
pub mod process;
pub mod rights;
pub mod signals;
pub mod symbol;
pub mod sync;
pub mod syscall;
pub mod tasks;
pub mod thread_block;
