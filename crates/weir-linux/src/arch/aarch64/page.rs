//! The kernel's pages.

/// Bytes of a page; `None`: as the kernel was built, 4, 16 or 64 KiB.
pub const BYTES: Option<usize> = None;
