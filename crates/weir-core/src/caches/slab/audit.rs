//! Whether a cache's lists and counts agree with its slabs.

use super::{Slab, is_slab_page};
use crate::base::fault::{Fault, check};
use crate::base::units::{PageNo, Pages};
use crate::caches::geometry::{Geometry, SLAB_TAIL};
use crate::caches::slab::lists::{DONE, EMPTY, MERGED, SlabLists, UNLISTED, list_of};
use crate::caches::slab::merged::audit_merged;
use crate::pages::window::Window;

/// Contents of a cache's slabs, found by a walk over the pages.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) slabs: usize,
    pub(crate) free: usize,
    pub(crate) listed: usize,
    pub(crate) empty: usize,
    pub(crate) reported: usize,
    pub(crate) merged: usize,
}

impl Sum {
    pub(crate) fn add(&mut self, other: Self) {
        self.slabs += other.slabs;
        self.free += other.free;
        self.listed += other.listed;
        self.empty += other.empty;
        self.reported += other.reported;
        self.merged += other.merged;
    }
}

/// Checks the slab that `page` lies in; returns its first page and adds it to `sum`.
pub(crate) fn audit_slab(window: &Window, g: &Geometry, page: PageNo, sum: &mut Sum) -> Result<PageNo, Fault> {
    let slab = Slab::of(window, g, page);
    let at = slab.page.index();
    for i in 0..usize::from(g.pages) {
        let class = if i > 0 && g.is_numbered() { SLAB_TAIL } else { g.class() };
        check(window.class_of(slab.page + Pages(i)) == class, "a page of a slab", at)?;
    }
    check(slab.is_of(g), "a slab's class", at)?;
    let words = usize::from(g.objects).div_ceil(32);
    let free: u32 = (0..words).map(|w| slab.get(g.header_words() + w).count_ones()).sum();
    check(free == slab.free(), "free objects of a slab", at)?;
    check((slab.list() == UNLISTED) == (free == 0), "a slab listed, or not, against its free objects", at)?;
    check(slab.reported() & !slab.free_pages(g) == 0, "a reported page under an object", at)?;
    sum.slabs += 1;
    sum.free += free as usize;
    sum.listed += usize::from(free > 0);
    sum.empty += usize::from(free == u32::from(g.objects));
    sum.reported += slab.reported().count_ones() as usize;
    sum.merged += audit_merged(slab, g)?;
    Ok(slab.page)
}

/// Whether the object at `addr` is one of this geometry's cache and not free in its slab.
pub(crate) fn is_out(window: &Window, g: &Geometry, addr: usize) -> bool {
    let known = window.page_of(addr).is_some_and(|p| is_slab_page(window, g, p));
    known && SlabLists::new().is_object(window, g, addr)
}

impl SlabLists {
    /// Checks the lists; returns what they and the counts say.
    pub(crate) fn audit(&self, window: &Window, g: &Geometry) -> Result<Sum, Fault> {
        let mut listed = 0;
        for list in 0..=EMPTY as usize {
            let (mut page, mut prev) = (self.heads[list], PageNo::NONE);
            while page != PageNo::NONE {
                let slab = Slab { window, page };
                let right = slab.list() as usize == list && PageNo(slab.get(1)) == prev && slab.is_of(g);
                check(right, "a link of a slab list", page.index())?;
                let (free, objects) = (slab.free() as usize, usize::from(g.objects));
                let right = match list_of(g, slab.free(), slab.look()) {
                    _ if free == objects => EMPTY,
                    _ if slab.look() == DONE && self.has_merged(slab, g) => MERGED,
                    list => list,
                };
                check(right as usize == list, "a slab on the wrong list", page.index())?;
                (prev, page, listed) = (page, PageNo(slab.get(0)), listed + 1);
            }
        }
        check(self.isolated == 0, "objects isolated, and no batch in flight", self.isolated)?;
        let Self { slabs, free, empty, reported, .. } = *self;
        Ok(Sum { slabs, free, listed, empty, reported, merged: self.merged.pages })
    }
}
