//! Merged pages of slabs ([`crate::merge`]): which there are, and with which others each is merged.
//!
//! A page whose free objects were filled is in a *ring* with the others that it was made equal to. All are of slabs of the same
//! cache on the same node, so that one lock guards all of a ring. A page leaves its ring when an object of it is handed out, or
//! when the page goes. The ring is a circle of links of one direction: who leaves looks for the page before it, and a ring is
//! short. Of a ring of n pages the kernel needs one page in place of n.

use core::sync::atomic::Ordering::Relaxed;

use super::{Slab, is_slab_page};
use crate::base::fault::{Fault, check};
use crate::base::units::{PageNo, Pages};
use crate::caches::geometry::Geometry;
use crate::caches::slab::lists::{EMPTY, SlabLists, UNLISTED};
use crate::pages::window::Window;

/// The bit of a slab's state that says that nothing changed since a look: whoever changes the state leaves it out.
const STILL: u32 = 1 << 31;

/// Pages at most that are in one ring: the kernel, too, has no more than 256 behind one page (`max_page_sharing`).
pub(crate) const LONGEST_RING: u32 = 128;

/// A page of a slab that could be merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SparsePage {
    /// Its number in the window.
    pub(crate) page: PageNo,
    /// Its place in the slab.
    pub(crate) place: usize,
    /// Bit i: the i-th of the objects that have bytes on it is not free.
    pub(crate) live: u64,
}

impl Slab<'_> {
    fn is_still(&self) -> bool {
        self.get(2) & STILL != 0
    }

    fn set_still(&self) {
        self.state_word().fetch_or(STILL, Relaxed);
    }

    fn merged(&self, g: &Geometry) -> u32 {
        self.get(g.merged_word())
    }

    fn is_merged(&self, g: &Geometry, place: u32) -> bool {
        self.merged(g) >> place & 1 == 1
    }

    fn set_merged(&self, g: &Geometry, place: u32, is_merged: bool) {
        let rest = self.merged(g) & !(1 << place);
        self.set(g.merged_word(), rest | u32::from(is_merged) << place);
    }

    /// Page `place`'s next in its ring.
    fn next(&self, g: &Geometry, place: u32) -> PageNo {
        PageNo(self.get(g.merged_word() + 1 + place as usize))
    }

    fn set_next(&self, g: &Geometry, place: u32, next: PageNo) {
        self.set(g.merged_word() + 1 + place as usize, next.0);
    }

    /// Which of the objects that have bytes on page `place` are not free.
    fn live_on(&self, g: &Geometry, place: usize) -> u64 {
        let objects = g.objects_on(place);
        let (first, words) = (objects.start / 32, usize::from(g.objects).div_ceil(32));
        let word = |i: usize| if i < words { self.get(g.header_words() + i) } else { 0 };
        let free = (0..3).fold(0u128, |free, i| free | u128::from(word(first + i)) << (32 * i));
        !((free >> (objects.start % 32)) as u64) & all(objects.len())
    }

    fn has_free_and_live(&self) -> bool {
        !matches!(self.list(), EMPTY | UNLISTED)
    }
}

/// So many ones.
fn all(objects: usize) -> u64 {
    u64::MAX.checked_shr(64 - objects as u32).unwrap_or(0)
}

/// The slab of a page of a ring, and the page's place in it.
fn at<'a>(window: &'a Window, g: &Geometry, page: PageNo) -> (Slab<'a>, u32) {
    let slab = Slab::of(window, g, page);
    (slab, (page - slab.page).0 as u32)
}

impl SlabLists {
    /// Merged pages of a slab.
    pub(in crate::caches) fn merged_pages(&self, slab: Slab<'_>, g: &Geometry) -> u32 {
        if self.merged.pages > 0 && g.may_merge() { slab.merged(g) } else { 0 }
    }

    pub(in crate::caches) fn has_merged(&self, slab: Slab<'_>, g: &Geometry) -> bool {
        self.merged_pages(slab, g) != 0
    }

    /// Looks at the slab that begins at `page`. Calls `f` with its pages that have both free objects and others, are not
    /// reported, and are in no ring. `None`: it is none of this cache, or has no such page. Else whether it is as it was when it
    /// was last looked at so, which is remembered where `remembers`.
    pub(crate) fn look_for_sparse(
        &self,
        window: &Window,
        g: &Geometry,
        page: PageNo,
        remembers: bool,
        mut f: impl FnMut(SparsePage),
    ) -> Option<bool> {
        let slab = Slab::of(window, g, page);
        let is_here = slab.page == page && is_slab_page(window, g, page) && slab.is_of(g);
        if !is_here || !g.may_merge() || !slab.has_free_and_live() {
            return None;
        }
        let (is_still, left_out) = (slab.is_still(), self.merged_pages(slab, g) | slab.reported());
        if remembers {
            slab.set_still();
        }
        let mut any = false;
        for place in (0..usize::from(g.pages)).filter(|place| left_out >> place & 1 == 0) {
            let live = slab.live_on(g, place);
            if live != 0 && live != all(g.objects_on(place).len()) {
                any = true;
                f(SparsePage { page: page + Pages(place), place, live });
            }
        }
        any.then_some(is_still)
    }

    /// Whether `page` is still a page of a slab of this cache, in no ring, with these objects on it that are not free.
    pub(crate) fn is_as_before(&self, window: &Window, g: &Geometry, page: PageNo, live: u64) -> bool {
        if !is_slab_page(window, g, page) {
            return false;
        }
        let (slab, place) = at(window, g, page);
        slab.is_of(g) && !slab.is_merged(g, place) && slab.live_on(g, place as usize) == live
    }

    /// Puts `page`, whose free objects were filled under this lock, into the ring of `other`. Where that one has left its ring,
    /// or there is none, `page` goes into a new one.
    pub(crate) fn join(&mut self, window: &Window, g: &Geometry, page: PageNo, other: Option<PageNo>) {
        let (slab, place) = at(window, g, page);
        slab.set_merged(g, place, true);
        slab.set_next(g, place, page);
        self.merged.pages += 1;
        let ring = other.filter(|&other| is_slab_page(window, g, other)).map(|other| at(window, g, other));
        if let Some((other, at)) = ring
            && other.is_of(g)
            && other.is_merged(g, at)
        {
            slab.set_next(g, place, other.next(g, at));
            other.set_next(g, at, page);
            self.merged.spared += 1;
        }
        // Pages of it that are free as a whole are still to be released.
        self.relist_unchanged(slab, g, slab.free(), slab.look());
        slab.set_still();
    }

    /// Takes `pages` of a slab out of their rings, as far as they are in one. A page that is left alone in its ring is merged
    /// with nothing, and leaves it too.
    pub(in crate::caches) fn leave(&mut self, slab: Slab<'_>, g: &Geometry, pages: u32) {
        let mut left = self.merged_pages(slab, g) & pages;
        while left != 0 {
            let place = left.trailing_zeros();
            left &= left - 1;
            // It may have been the one that was left alone.
            if slab.is_merged(g, place) {
                self.leave_ring(slab, g, place);
            }
        }
    }

    fn leave_ring(&mut self, slab: Slab<'_>, g: &Geometry, place: u32) {
        let (page, next) = (slab.page + Pages(place as usize), slab.next(g, place));
        slab.set_merged(g, place, false);
        self.merged.pages -= 1;
        if next == page {
            return;
        }
        self.merged.spared -= 1;
        let (mut before, mut its_place) = at(slab.window, g, next);
        while before.next(g, its_place) != page {
            (before, its_place) = at(slab.window, g, before.next(g, its_place));
        }
        before.set_next(g, its_place, next);
        if before.page + Pages(its_place as usize) == next {
            before.set_merged(g, its_place, false);
            self.merged.pages -= 1;
            if before.page != slab.page {
                self.relist_unchanged(before, g, before.free(), before.look());
            }
        }
    }

    /// Takes `page` out of its ring, if it is in one; where `if_alone`, only if no other is in it: such a ring is none.
    pub(crate) fn leave_page(&mut self, window: &Window, g: &Geometry, page: PageNo, if_alone: bool) {
        if !is_slab_page(window, g, page) {
            return;
        }
        let (slab, place) = at(window, g, page);
        if slab.is_of(g) && slab.is_merged(g, place) && (!if_alone || slab.next(g, place) == page) {
            self.leave(slab, g, 1 << place);
            self.relist_unchanged(slab, g, slab.free(), slab.look());
        }
    }

    /// Takes all pages of the slab that begins at `page` out of their rings.
    pub(crate) fn part(&mut self, window: &Window, g: &Geometry, page: PageNo) {
        let slab = Slab::of(window, g, page);
        if slab.page == page && is_slab_page(window, g, page) && slab.is_of(g) && self.has_merged(slab, g) {
            self.leave(slab, g, u32::MAX);
            self.relist_unchanged(slab, g, slab.free(), slab.look());
        }
    }
}

/// Checks the merged pages of a slab; returns how many there are.
pub(super) fn audit_merged(slab: Slab<'_>, g: &Geometry) -> Result<usize, Fault> {
    let merged = if g.may_merge() { slab.merged(g) } else { 0 };
    check(merged & slab.reported() == 0, "a page merged and reported", slab.page.index())?;
    for place in (0..32).filter(|place| merged >> place & 1 == 1) {
        let (page, next) = (slab.page + Pages(place as usize), slab.next(g, place));
        check(next != page, "a page merged with itself", page.index())?;
        check(is_slab_page(slab.window, g, next), "a merged page's next is of no slab", page.index())?;
        let (other, at) = at(slab.window, g, next);
        check(other.is_of(g) && other.is_merged(g, at), "a merged page's next is not merged", page.index())?;
    }
    Ok(merged.count_ones() as usize)
}
