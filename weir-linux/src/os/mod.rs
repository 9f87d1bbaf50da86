//! The Linux below Weir, by raw system calls: no errno, no TLS, no allocation, no libc.
//!
//! Code here runs inside `malloc`, in a background thread that libc does not know, and in forked children,
//! so it may use nothing that libc keeps state for.

pub mod descriptor_table;
pub mod exec;
pub mod fd;
pub mod identity;
pub mod mman;
pub mod path;
pub mod probe;
pub mod process;
pub mod ring;
pub mod sync;
pub mod syscall;
pub mod tasks;
pub mod text;
pub mod weak_symbol;
