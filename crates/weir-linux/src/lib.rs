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

// Not the ABIs with pointers of 32 bits that these processors have too.
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_endian = "little",
    target_pointer_width = "64"
)))]
compile_error!("Weir runs on 64-bit Linux on x86-64 and arm64: `arch` has a folder for each processor");

pub mod arch;
pub mod control;
pub mod messages;
pub mod os;
pub mod platform;
pub mod pressure;
pub mod process;
pub mod profile;
pub mod threads;
