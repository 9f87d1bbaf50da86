//! The units that everything is counted in: pages, orders, pageblocks.

/// log2 of the page size.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes of a page.
pub const PAGE: usize = 1 << PAGE_SHIFT;
/// Orders run from 0 to `MAX_ORDER - 1` (Linux's buddy: 11 orders, 4 KiB to 4 MiB).
pub const MAX_ORDER: u32 = 11;
/// Smallest order that is reported on its own (Linux page hinting: MAX_ORDER - 2): a pageblock, a huge page.
pub const REPORT_ORDER: u32 = MAX_ORDER - 2;
/// Pages of a pageblock.
pub const PAGEBLOCK_PAGES: usize = 1 << REPORT_ORDER;
/// Bytes of a pageblock.
pub const PAGEBLOCK: usize = PAGEBLOCK_PAGES * PAGE;
/// No page, no pageblock: the end of a list.
pub const NONE: u32 = u32::MAX;
/// The smallest order whose block holds `pages`.
#[inline]
pub const fn order_of(pages: usize) -> u32 {
    pages.next_power_of_two().trailing_zeros()
}

/// Largest run that comes from a zone, pages (4 MiB); larger blocks are mapped on their own.
pub const MAX_RUN: usize = 1 << (MAX_ORDER - 1);

const _: () = assert!(PAGE == 1 << PAGE_SHIFT && PAGEBLOCK == PAGEBLOCK_PAGES * PAGE);
