//! The Linux below Weir, by raw system calls: no errno, no TLS, no allocation, no libc.
//!
//! Code here runs inside `malloc`, in a background thread that libc has no record of, and in forked children,
//! so it may use nothing that libc keeps state for.

pub mod auxv;
pub mod bell;
pub mod catch;
pub mod clock;
pub mod credentials;
pub mod descriptor_table;
pub mod epoll;
pub mod exec;
pub mod fd;
pub mod futex;
pub mod libc_symbol;
pub mod membarrier;
pub mod memfd;
pub mod memory_probes;
pub mod mman;
pub mod other_malloc;
pub mod path;
pub mod probe;
pub mod process;
pub mod random;
pub mod ring;
pub mod scheduling;
pub mod seccomp;
pub mod signal_action;
pub mod signals;
pub mod socket;
pub mod sync;
pub mod syscall;
pub mod tasks;
pub mod text;
pub mod thread_block;
pub mod user_namespace;
pub mod weak_symbol;
