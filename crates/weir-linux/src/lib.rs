//! Weir's platform on Linux: what the engine (`weir-core`) runs on in a process. A crate for its sisters `weir` and
//! `weir-malloc`, with no promise to anybody else.
//!
//! | folder | what is in it |
//! |---|---|
//! | [`os`] | raw system calls, by subject |
//! | [`messages`] | every line for standard error |
//! | [`platform`] | the engine's platform trait: memory, release, waiting, topology, restartable sequences |
//! | [`pressure`] | sources of memory pressure: PSI, cgroups, the service manager's watch |
//! | [`control`] | the channel by which a process is looked at and steered while it runs |
//! | [`profile`] | the heap profile: which allocation is sampled, its call stack, the profile as text |
//! | [`threads`] | the background thread, node workers, the finalizer thread |
//! | [`process`] | the process's heap, its start and settings, `fork` |
#![cfg_attr(not(test), no_std)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")))]
compile_error!("Weir runs on 64-bit x86-64 Linux only: its system calls, threads and fast path are written for it");

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub mod control;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub mod messages;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub mod os;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub mod platform;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub mod pressure;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub mod process;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub mod profile;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub mod threads;
