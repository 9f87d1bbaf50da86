//! Whether a class's lists and counts agree with its slabs.

use super::{FILLS, Slab, SlabLists, UNLISTED};
use crate::audit::{Fault, check};
use crate::page::{NONE, Window};
use crate::size_class::{HEADER_WORDS, PAGES};

/// What a class's slabs hold, found by walking the pages.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    pub(crate) slabs: usize,
    pub(crate) free: usize,
    pub(crate) listed: usize,
}

/// Checks the slab that `page` of class `class` lies in; returns its first page and adds it to `sum`.
pub(crate) fn audit_slab(window: &Window, class: usize, page: u32, sum: &mut Sum) -> Result<u32, Fault> {
    let slab = Slab::of(window, class, page);
    let at = slab.page as usize;
    for i in 0..u32::from(PAGES[class]) {
        check(usize::from(window.class_of(slab.page + i)) == class, "a page of a slab", at)?;
    }
    check(slab.class() as usize == class, "a slab's class", at)?;
    let words = Slab::objects(class).div_ceil(32);
    let free: u32 = (0..words).map(|w| slab.get(HEADER_WORDS + w).count_ones()).sum();
    check(free == slab.free(), "free objects of a slab", at)?;
    check((free as usize) < Slab::objects(class), "an empty slab that was kept", at)?;
    check((slab.list() == UNLISTED) == (free == 0), "a slab listed, or not, against its free objects", at)?;
    check(slab.reported() & !slab.free_pages(class) == 0, "a reported page under an object", at)?;
    sum.slabs += 1;
    sum.free += free as usize;
    sum.listed += usize::from(free > 0);
    Ok(slab.page)
}

/// Whether the object at `addr` is one of `class` and not free in its slab.
pub(crate) fn is_out(window: &Window, class: usize, addr: usize) -> bool {
    let known = window.page_of(addr).is_some_and(|p| usize::from(window.class_of(p)) == class);
    known && SlabLists::new().is_object(window, class, addr)
}

impl SlabLists {
    /// Checks the lists, and the counts against what the pages said.
    pub(crate) fn audit(&self, window: &Window, class: usize, found: Sum) -> Result<(), Fault> {
        let mut listed = 0;
        for list in 0..FILLS {
            let (mut page, mut prev) = (self.heads[list], NONE);
            while page != NONE {
                let slab = Slab { window, page };
                let right = slab.list() as usize == list && slab.get(1) == prev && slab.class() as usize == class;
                check(right, "a link of a slab list", page as usize)?;
                let fill = slab.free() as usize * FILLS / (Slab::objects(class) + 1);
                check(fill == list, "a slab on the wrong list", page as usize)?;
                (prev, page, listed) = (page, slab.get(0), listed + 1);
            }
        }
        check(listed == found.listed, "slabs on lists", class)?;
        check(self.slabs == found.slabs, "slabs of a class", class)?;
        check(self.free == found.free, "free objects of a class", class)
    }
}
