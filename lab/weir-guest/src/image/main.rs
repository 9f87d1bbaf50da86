//! The kernel image: boots by PVH, manages its memory with Weir, gives it back through the virtio-balloon.
//!
//! The image is built for the host's own target, so its code uses what that target has (SSE). It is linked without
//! start files or libc (`build.rs`). One CPU, no interrupts, memory at its own addresses.
#![cfg_attr(all(target_arch = "x86_64", target_os = "linux"), no_std, no_main)]

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod kernel {
    mod boot;
    mod clock;
    mod console;
    mod devices;
    mod ending;
    mod memory_functions;
    mod paging;
    mod ports;
    mod start;
    mod workload;
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn main() {
    eprintln!("the guest's kernel image is built on x86-64 Linux only");
    std::process::exit(1);
}
