//! [`plugin`] with Weir as its allocator.

pub mod plugin;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[global_allocator]
static HEAP: weir::Weir = weir::Weir;
