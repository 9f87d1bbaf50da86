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

/// An order: 2^k pages, as the alignment of pages in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Order(pub u32);

impl Order {
    /// A page: no alignment beyond it.
    pub const PAGE: Self = Self(0);

    /// The smallest order whose block holds `pages` pages.
    #[inline]
    pub const fn of_pages(pages: usize) -> Self {
        Self(order_of(pages))
    }

    /// The order of an alignment of `align` bytes, a power of two.
    #[inline]
    pub const fn of_align(align: usize) -> Self {
        Self::of_pages(align.div_ceil(PAGE))
    }
}

/// Largest run that comes from a zone, pages (4 MiB); larger blocks are mapped on their own.
pub const MAX_RUN: usize = 1 << (MAX_ORDER - 1);

const _: () = assert!(PAGE == 1 << PAGE_SHIFT && PAGEBLOCK == PAGEBLOCK_PAGES * PAGE);
