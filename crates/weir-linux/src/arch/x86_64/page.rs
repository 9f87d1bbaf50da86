//! The kernel's pages.

use weir_core::base::units::PAGE;

/// Bytes of a page; `None`: as the kernel was built.
pub const BYTES: Option<usize> = Some(PAGE);
