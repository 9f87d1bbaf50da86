//! The sizes that zones come in.

use weir_core::base::units::{PAGE, PAGEBLOCK, PageNo};

/// The unit of a zone's size and of taking memory offline, bytes: a huge page.
pub const BLOCK: usize = PAGEBLOCK;
/// Greatest size of a zone, bytes: 16 TiB but for a block.
pub(super) const MAX_SIZE: usize = (1 << 44) - BLOCK;
// Each page has a number of its own, and none has that of no page.
const _: () = assert!(MAX_SIZE / PAGE <= PageNo::NONE.index());
/// Longest run of pages, bytes.
pub const MAX_RUN: usize = 4 << 20;
