//! The sizes that zones come in.

use weir_core::base::units::PAGEBLOCK;

/// The unit of a zone's size and of taking memory offline, bytes: a huge page.
pub const BLOCK: usize = PAGEBLOCK;
/// Greatest size of a zone, bytes.
pub(super) const MAX_SIZE: usize = isize::MAX as usize / 2 / BLOCK * BLOCK;
/// Longest run of pages, bytes.
pub const MAX_RUN: usize = 4 << 20;
