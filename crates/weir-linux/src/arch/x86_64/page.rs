//! The kernel's pages.

use weir_core::base::units::PAGE;

/// Bytes of a page, which are always the engine's.
pub const fn bytes() -> usize {
    PAGE
}
