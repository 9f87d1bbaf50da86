//! The Linux below Weir, by raw system calls: no errno, no TLS, no allocation, no libc.
//!
//! Code here runs inside `malloc`, in a background thread that libc does not know, and in forked children,
//! so it may use nothing that libc keeps state for.

pub mod cgroup;
pub mod exec;
pub mod fd;
pub mod groups;
pub mod identity;
pub mod memcg;
pub mod mman;
pub mod path;
pub mod pressure_level;
pub mod pressure_watch;
pub mod probe;
pub mod process;
pub mod psi;
pub mod readings;
pub mod ring;
pub mod sources;
pub mod syscall;
pub mod table;
pub mod tasks;
pub mod text;
pub mod wake;
