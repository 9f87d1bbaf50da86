//! Slabs: runs of pages cut into equal objects, with a header and a bitmap out of line.
//!
//! The descriptors of a slab's pages hold, from the first page's on:
//!
//! - the next and previous slab of the list;
//! - the count of free objects with class, list and last look;
//! - the mask of pages that are reported;
//! - the number of the cache if that has no buckets;
//! - the bitmap (1: free);
//! - at the end the mask of pages that are merged, and a word for each of them ([`merged`]).
//!
//! Which slab serves next, [`lists`] says.

pub(crate) mod audit;
pub mod lists;
pub(crate) mod merged;
pub(crate) mod objects;
pub(crate) mod pages;
pub mod pieces;
pub(crate) mod sparse;
pub(crate) mod usage;

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed},
    fence,
};

use crate::base::units::{Class, Order, PAGE, PAGE_SHIFT, PageNo, Pages};
use crate::caches::geometry::{Geometry, MAX_PAGES, MIN_OBJECT, NUMBER_WORD, SLAB_HEAD, SLAB_TAIL};
use crate::pages::page_set::filled_blocks;
use crate::pages::window::Window;

/// An empty slab on its way back to the zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Empty {
    /// First page of the slab.
    pub page: PageNo,
    /// Bit i: page i of it is reported.
    pub reported: u32,
}

/// Free pages of a slab, isolated for a report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Isolated {
    /// First page of the slab.
    pub page: PageNo,
    /// Bit i: page i of it is wholly free and backed.
    pub pages: u32,
}

/// How many pages are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    /// Pages in rings.
    pub(crate) pages: usize,
    /// Pages that go when the kernel merges each ring: all of a ring but one.
    pub(crate) spared: usize,
}

impl Merged {
    pub(crate) const NONE: Self = Self { pages: 0, spared: 0 };

    /// As many as both have.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { pages: self.pages + other.pages, spared: self.spared + other.spared }
    }
}

/// Whether the header of the slab that `page` is of tells of reported pages. Read without its lock: by the time it is used
/// another may be right.
pub(crate) fn has_reported(window: &Window, g: &Geometry, page: PageNo) -> bool {
    Slab::of(window, g, page).reported() != 0
}

/// A view of one slab's header and bitmap.
#[derive(Clone, Copy)]
pub(super) struct Slab<'a> {
    pub(super) window: &'a Window,
    /// First page of the slab.
    pub(super) page: PageNo,
}

impl<'a> Slab<'a> {
    pub(super) fn of(window: &'a Window, g: &Geometry, page: PageNo) -> Self {
        // Slabs are aligned to the power of two above their length.
        Self { window, page: page.aligned_down(Order::of_pages(g.slab_pages())) }
    }

    pub(super) fn get(&self, i: usize) -> u32 {
        self.window.word(self.page, i).load(Relaxed)
    }

    pub(super) fn set(&self, i: usize, value: u32) {
        self.window.word(self.page, i).store(value, Relaxed)
    }

    pub(super) fn free(&self) -> u32 {
        State(self.get(2)).free()
    }
    pub(super) fn class(&self) -> Class {
        State(self.get(2)).class()
    }
    /// Whether its header says that it is a slab of the cache with this geometry. One that has just been emptied is of
    /// none: its header is cleared before its pages are.
    pub(super) fn is_of(&self, g: &Geometry) -> bool {
        self.class() == g.class() && (!g.is_numbered() || self.get(NUMBER_WORD) == g.number)
    }
    pub(super) fn list(&self) -> u32 {
        State(self.get(2)).list()
    }
    /// Result of the last look at the slab's pages.
    pub(super) fn look(&self) -> u32 {
        self.get(2) >> 29 & 3
    }
    pub(super) fn set_state(&self, free: u32, class: Class, list: u32, look: u32) {
        self.state_word().store(State::new(free, class, list, look).0, Relaxed);
    }
    pub(super) fn state_word(&self) -> &'a AtomicU32 {
        self.window.word(self.page, 2)
    }
    /// Whether the program refused to move an object of it, and none came or went since.
    pub(super) fn is_asked(&self) -> bool {
        self.get(2) & ASKED != 0
    }
    pub(super) fn set_asked(&self) {
        self.set(2, self.get(2) | ASKED);
    }
    /// Those of `pages` (bit i: page i of the slab) that can be released: aligned blocks of the window's granule.
    pub(super) fn whole(self, pages: u32) -> u32 {
        let Order(order @ ..=5) = self.window.granule() else { return 0 };
        let before = self.page.index() as u32 % (1 << order);
        (filled_blocks(u64::from(pages) << before, order) >> before) as u32
    }

    /// Pages that have memory if `pages` have it: all of the aligned blocks of the window's granule that they touch.
    pub(super) fn around(self, pages: u32) -> u32 {
        let Order(order @ ..=5) = self.window.granule() else { return u32::MAX };
        let before = self.page.index() as u32 % (1 << order);
        (!filled_blocks(!(u64::from(pages) << before), order) >> before) as u32
    }

    pub(super) fn reported(&self) -> u32 {
        self.get(3)
    }
    pub(super) fn addr(&self) -> usize {
        self.window.addr_of(self.page)
    }

    /// Bit i: page i of the slab is covered by free objects alone.
    pub(super) fn free_pages(&self, g: &Geometry) -> u32 {
        let pages = usize::from(g.pages);
        let mut used = 0u32;
        for word in 0..usize::from(g.objects).div_ceil(32) {
            let n = (usize::from(g.objects) - word * 32).min(32);
            used |= self.pages_of(g, word, !self.get(g.header_words() + word) & (u32::MAX >> (32 - n)));
        }
        !used & (u32::MAX >> (32 - pages))
    }

    /// Pages that objects of one bitmap word lie on: those in `mask`.
    pub(super) fn pages_of(&self, g: &Geometry, word: usize, mut mask: u32) -> u32 {
        let (size, mut pages) = (g.size as usize, 0);
        while mask != 0 {
            pages |= page_mask((word * 32 + mask.trailing_zeros() as usize) * size, size);
            mask &= mask - 1;
        }
        pages
    }

    /// Calls `f` with each bitmap word and the mask of its objects that touch `pages`.
    pub(super) fn for_objects_in(&self, g: &Geometry, pages: u32, mut f: impl FnMut(usize, u32)) {
        let size = g.size as usize;
        for word in 0..usize::from(g.objects).div_ceil(32) {
            let n = (usize::from(g.objects) - word * 32).min(32);
            let inside = |i: &usize| page_mask((word * 32 + i) * size, size) & pages != 0;
            let mask = (0..n).filter(inside).fold(0, |m, i| m | 1 << i);
            if mask != 0 {
                f(g.header_words() + word, mask);
            }
        }
    }
}

/// Pages that the bytes from `offset` lie on.
pub(super) fn page_mask(offset: usize, len: usize) -> u32 {
    let (first, last) = (offset >> PAGE_SHIFT, (offset + len - 1) >> PAGE_SHIFT);
    (u32::MAX >> (31 - (last - first))) << first
}

/// Whether the class map says that `page` is of a slab of this geometry's cache; or, if that has no buckets, of some
/// such.
pub(super) fn is_slab_page(window: &Window, g: &Geometry, page: PageNo) -> bool {
    let class = window.class_of(page);
    class == g.class() || class == SLAB_TAIL && g.is_numbered()
}

/// The number in the header of the slab that `page` is of, which is one of a cache without buckets. `None`: it is none.
///
/// No lock is held: of a slab that an object in use belongs to, the header does not change. For any other pointer the
/// answer is whatever a moment's look finds.
pub(super) fn number_in_header(window: &Window, page: PageNo) -> Option<usize> {
    let first = window.head(page, Pages(MAX_PAGES), |class| class != SLAB_TAIL)?;
    if window.class_of(first) != SLAB_HEAD {
        return None;
    }
    fence(Acquire);
    let slab = Slab { window, page: first };
    let (class, number) = (slab.class(), slab.get(NUMBER_WORD));
    (class == SLAB_HEAD).then_some(number as usize)
}

/// Objects of a slab at most.
const MAX_OBJECTS: usize = MAX_PAGES * PAGE / MIN_OBJECT;
/// The bit of a slab's state of [`Slab::is_asked`], above the count of free objects.
const ASKED: u32 = 1 << 15;

/// The word of a header with the count of free objects, class, list and last look.
#[derive(Clone, Copy)]
pub(super) struct State(pub(super) u32);

impl State {
    /// The last bit is not set, nor [`ASKED`]: [`Slab::is_still`] of a slab that changed.
    pub(super) fn new(free: u32, class: Class, list: u32, look: u32) -> Self {
        Self(free | u32::from(class.0) << 16 | list << 24 | look << 29)
    }
    pub(super) fn free(self) -> u32 {
        self.0 & (ASKED - 1)
    }
    pub(super) fn class(self) -> Class {
        Class((self.0 >> 16) as u8)
    }
    pub(super) fn list(self) -> u32 {
        self.0 >> 24 & 0x1f
    }
}

const _: () = assert!(PAGE == 4096 && MAX_OBJECTS < ASKED as usize);
