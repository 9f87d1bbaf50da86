//! The units that everything is counted in: bytes, pages, orders, pageblocks, classes.
//!
//! Each unit is a type of its own, so that a number of pages cannot stand where the number of a page is wanted. A type has
//! only the operations that mean something: two page numbers have a distance in pages, and no sum.
//!
//! An amount of memory is of [`Bytes`]. The size of a block and the length of a run are plain numbers, as the platform, the
//! allocation calls and addresses have them. So are numbers of objects.

use core::fmt;
use core::ops::{AddAssign, Range};

/// log2 of the page size.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes of a page.
pub const PAGE: usize = 1 << PAGE_SHIFT;
/// Orders run from 0 to `MAX_ORDER - 1` (Linux's buddy: 11 orders, 4 KiB to 4 MiB).
pub const MAX_ORDER: u32 = 11;
/// Smallest order that is reported on its own (Linux page hinting: MAX_ORDER - 2): a pageblock, a huge page.
pub const REPORT_ORDER: u32 = MAX_ORDER - 2;
/// Pages of a pageblock, as a plain number: for array lengths and places inside a pageblock.
pub const PAGEBLOCK_PAGES: usize = 1 << REPORT_ORDER;
/// Bytes of a pageblock.
pub const PAGEBLOCK: usize = PAGEBLOCK_PAGES * PAGE;
/// No page, no pageblock: the end of a list whose links are plain words.
pub const NONE: u32 = u32::MAX;
/// Largest run that comes from a zone (4 MiB); larger blocks are mapped on their own.
pub const MAX_RUN: Pages = Pages::of_order(MAX_ORDER - 1);
/// Largest alignment of such a run: its length.
pub(crate) const MAX_RUN_ORDER: Order = Order(MAX_ORDER - 1);

const _: () = assert!(PAGE == 1 << PAGE_SHIFT && PAGEBLOCK == PAGEBLOCK_PAGES * PAGE);

/// A number of pages.
///
/// ```
/// use weir_core::base::units::{PAGE, PageNo, Pages};
///
/// assert_eq!(Pages::to_hold(PAGE + 1), Pages(2));
/// assert_eq!(PageNo(7) + Pages(2), PageNo(9));
/// assert_eq!(PageNo(9) - PageNo(7), Pages(2));
/// ```
///
/// A number of a page is no number of pages:
///
/// ```compile_fail,E0308
/// use weir_core::base::units::{PageNo, Pages};
///
/// let pages: Pages = PageNo(7);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Pages(pub usize);

impl Pages {
    /// No pages.
    pub const ZERO: Self = Self(0);
    /// More than there are: no bound.
    pub const MAX: Self = Self(usize::MAX);
    /// Pages of a pageblock.
    pub const BLOCK: Self = Self(PAGEBLOCK_PAGES);

    /// The whole pages in a run or block of `length` bytes.
    #[inline]
    pub const fn in_bytes(length: usize) -> Self {
        Self(length / PAGE)
    }

    /// As many pages as hold a block of `size` bytes.
    #[inline]
    pub const fn to_hold(size: usize) -> Self {
        Self(size.div_ceil(PAGE))
    }

    /// Pages of a block of `order`.
    #[inline]
    pub(crate) const fn of_order(order: u32) -> Self {
        Self(1 << order)
    }

    /// Bytes of these pages: how much memory they are.
    #[inline]
    pub const fn bytes(self) -> Bytes {
        Bytes(self.length())
    }

    /// Length in bytes of so many pages in a row.
    #[inline]
    pub const fn length(self) -> usize {
        self.0 * PAGE
    }

    /// As many pageblocks as hold these pages.
    #[inline]
    pub(crate) const fn blocks(self) -> usize {
        self.0.div_ceil(PAGEBLOCK_PAGES)
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

amount!(Pages(usize));

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An amount of memory, bytes: what is counted, charged, wanted, released.
///
/// `usize`, as all of it lies at addresses of one process. Counters that other processes read, and readings of the system's, are
/// `u64`: they become an amount where the engine compares them with one.
///
/// ```
/// use weir_core::base::units::{Bytes, PAGE, Pages};
///
/// let amount = Bytes(PAGE + 1);
/// assert_eq!((amount.pages_down(), amount.pages_up()), (Pages(1), Pages(2)));
/// ```
///
/// A number of pages is no amount of bytes:
///
/// ```compile_fail,E0308
/// use weir_core::base::units::{Bytes, Pages};
///
/// let amount: Bytes = Pages(7);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Bytes(pub usize);

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// More than there is: no bound.
    pub const MAX: Self = Self(usize::MAX);

    /// The whole pages in it.
    #[inline]
    pub const fn pages_down(self) -> Pages {
        Pages::in_bytes(self.0)
    }

    /// As many pages as hold it.
    #[inline]
    pub const fn pages_up(self) -> Pages {
        Pages::to_hold(self.0)
    }

    /// Whether there is nothing.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

amount!(Bytes(usize));

/// The number of a page in its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct PageNo(pub u32);

impl PageNo {
    /// No page: the end of a list.
    pub const NONE: Self = Self(NONE);

    /// Where it is in an array of all pages.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The pageblock that it lies in.
    #[inline]
    pub(crate) const fn block(self) -> BlockNo {
        BlockNo(self.0 >> REPORT_ORDER)
    }

    /// Where it is in its pageblock: 0 to 511.
    #[inline]
    pub(crate) const fn in_block(self) -> usize {
        self.0 as usize % PAGEBLOCK_PAGES
    }

    /// The first page at or before this one that is aligned to `order`.
    #[inline]
    pub(crate) const fn aligned_down(self, order: Order) -> Self {
        Self(self.0 >> order.0 << order.0)
    }

    /// The page `pages` before this one, or page 0.
    #[inline]
    pub(crate) const fn saturating_sub(self, pages: Pages) -> Self {
        Self((self.0 as usize).saturating_sub(pages.0) as u32)
    }

    /// Pages from `first` to this one; `None`: this one lies before it.
    #[inline]
    pub(crate) const fn since(self, first: Self) -> Option<Pages> {
        match self.0.checked_sub(first.0) {
            Some(pages) => Some(Pages(pages as usize)),
            None => None,
        }
    }
}

point!(PageNo(u32) by Pages(usize));

impl AddAssign<Pages> for PageNo {
    #[inline]
    fn add_assign(&mut self, pages: Pages) {
        *self = *self + pages;
    }
}

/// The number of a pageblock in its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct BlockNo(pub u32);

impl BlockNo {
    /// No pageblock: the end of a list.
    pub const NONE: Self = Self(NONE);

    /// Where it is in an array of all pageblocks.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its first page.
    #[inline]
    pub const fn first(self) -> PageNo {
        PageNo(self.0 << REPORT_ORDER)
    }

    /// Its page `at`, 0 to 511.
    #[inline]
    pub(crate) const fn page(self, at: usize) -> PageNo {
        PageNo((self.0 << REPORT_ORDER) + at as u32)
    }

    /// The pageblock before it.
    #[inline]
    pub(crate) fn before(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }

    /// The pageblock behind it.
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// `blocks` pageblocks from this one on.
    #[inline]
    pub const fn row(self, blocks: usize) -> Range<Self> {
        self..Self(self.0 + blocks as u32)
    }

    /// Each of `blocks`, ascending.
    #[inline]
    pub fn each(blocks: Range<Self>) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator {
        (blocks.start.0..blocks.end.0).map(Self)
    }
}

/// Pages in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first page.
    pub first: PageNo,
    /// How many there are.
    pub len: Pages,
}

impl Span {
    /// `len` pages from `first`.
    #[inline]
    pub const fn new(first: PageNo, len: Pages) -> Self {
        Self { first, len }
    }

    /// The page behind the last.
    #[inline]
    pub(crate) fn end(self) -> PageNo {
        self.first + self.len
    }

    /// The pageblocks that the pages lie in, and which of each one's pages they are.
    pub(crate) fn pieces(self) -> impl Iterator<Item = (BlockNo, Range<usize>)> {
        let (mut at, end) = (self.first, self.end());
        core::iter::from_fn(move || {
            (at < end).then(|| {
                let (block, from) = (at.block(), at.in_block());
                let to = (from + (end - at).0).min(PAGEBLOCK_PAGES);
                at += Pages(to - from);
                (block, from..to)
            })
        })
    }
}

/// Contents of a page, as the class map has them in a byte. A class is also the number of the bucket of a CPU that such blocks
/// pass through.
///
/// 0 is none. malloc's size classes come first, then the run classes, then caches of a program. The last ones are marks, and
/// their buckets are empty and full at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Class(pub u8);

impl Class {
    /// Where it is in an array of all classes. Of a class that is no mark: the number of its cache.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The smallest order whose block holds `pages`.
#[inline]
pub(crate) const fn order_of(pages: Pages) -> u32 {
    pages.0.next_power_of_two().trailing_zeros()
}

/// An order: 2^k pages, as the alignment of pages in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Order(pub u32);

impl Order {
    /// A page: no alignment beyond it.
    pub const PAGE: Self = Self(0);
    /// A pageblock, and a huge page.
    pub const BLOCK: Self = Self(REPORT_ORDER);

    /// The smallest order whose block holds `pages`.
    #[inline]
    pub(crate) const fn of_pages(pages: Pages) -> Self {
        Self(order_of(pages))
    }

    /// The order of an alignment of `align` bytes, a power of two.
    #[inline]
    pub const fn of_align(align: usize) -> Self {
        Self::of_pages(Pages::to_hold(align))
    }

    /// Pages of a block of this order.
    #[inline]
    pub const fn pages(self) -> Pages {
        Pages::of_order(self.0)
    }

    /// Whether `addr` is a multiple of it. By a mask, and not a division.
    #[inline]
    pub(crate) const fn aligns(self, addr: usize) -> bool {
        addr & (self.pages().length() - 1) == 0
    }

    /// The aligned blocks of this order that `pages` of a pageblock touch.
    #[inline]
    pub(crate) const fn around(self, pages: &Range<usize>) -> Range<usize> {
        let last = (1 << self.0) - 1;
        pages.start & !last..(pages.end + last) & !last
    }
}
