//! The programs, one a file.

pub mod calls;
pub mod file_server;
pub mod forward;
pub mod guest;
pub mod huge_heap;
pub mod many_threads;
pub mod neighbours;
pub mod page_fault;
pub mod page_pools;
pub mod soak;
pub mod sparse;
pub mod workloads;
