//! The parts of a bare-metal guest that need no bare metal: each can be run, and is tested, on the host.
//!
//! | floor | file | what it is |
//! |---|---|---|
//! | 4 | [`machine`] | the engine's `Platform` over physical memory |
//! | 3 | [`guest_memory`] | physical memory as the engine takes it and gives it back |
//! | 3 | [`reporter`] | fills free blocks and reports them, and counts what that took |
//! | 2 | [`balloon`] | the virtio-balloon's reporting queue: negotiation, one request, its acknowledgement |
//! | 2 | [`virtio_pci`] | a virtio device on PCI, by its registers in memory |
//! | 1 | [`virtio`], [`virtqueue`] | what any virtio device is, whatever its bus; a split ring |
//! | 1 | [`pci`] | configuration space: finding a function, its address ranges, its capabilities |
//! | 1 | [`frames`] | which pages of physical memory are free |
//! | 1 | [`boot_info`] | what a PVH loader says: memory map and command line |
//! | 1 | [`settings`], [`one_cpu`], [`zero`] | the command line; state that one CPU has to itself; zeroing without touching |
//!
//! The kernel image (`src/image`) adds what only bare metal has: the start, ports, the console, the clock.
#![cfg_attr(not(test), no_std)]

pub mod balloon;
pub mod boot_info;
pub mod frames;
pub mod guest_memory;
pub mod machine;
pub mod one_cpu;
pub mod pci;
pub mod reporter;
pub mod settings;
pub mod virtio;
pub mod virtio_pci;
pub mod virtqueue;
pub mod zero;

#[cfg(test)]
mod tests;
