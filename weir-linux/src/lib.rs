//! Weir's platform on Linux: what the engine (`weir-core`) runs on in a process. A crate for its sisters `weir` and
//! `weir-malloc`, with no promise to anybody else.
//!
//! | folder | what is in it |
//! |---|---|
//! | [`os`] | raw system calls, by subject |
//! | [`platform`] | the engine's platform trait: memory, release, waiting, topology, restartable sequences |
//! | [`pressure`] | sources of memory pressure: PSI, cgroups, the service manager's watch |
//! | [`threads`] | the background thread, node workers, the finalizer thread |
//! | [`process`] | the process's heap, its start and settings, `fork` |
#![cfg_attr(not(test), no_std)]

pub mod messages;
pub mod os;
pub mod platform;
pub mod pressure;
pub mod process;
pub mod threads;
