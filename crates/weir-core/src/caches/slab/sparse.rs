//! Which objects are worth a move, and where they go: for programs that copy their objects by themselves
//! ([`crate::caches::moving`]), and for those that reclaim asks ([`crate::caches::user_cache`]).
//!
//! After a peak nearly every slab may have a few objects left. Each that moves to a fuller slab brings its own nearer to being
//! empty. All moves of a cache go to one slab, the *target*, until that is full; then the fullest slab that a bounded search
//! finds is next, or the one that is looked at where it finds none as full. An object is worth a move while
//!
//! - of the places that have memory more than one in [`WASTE`] is free, and a slab's worth at least: else little would be won;
//! - its slab is at most an eighth fuller than the mean (jemalloc's measure for the same question);
//! - the target has as many objects as its slab, or more.
//!
//! **Moves end.** Each takes an object from a slab to one with as many or more, so the sum of the squares of all slabs' objects
//! grows by 2 at least; it is bounded by what full slabs have. And while the program frees nothing few objects move twice: what
//! moved lies in the target, which is the fullest that was found, and is full in the end.
//!
//! Pages that are reported or merged cost nothing. A slab with merged pages is neither moved from nor a target, and objects of
//! a page or more leave whole pages free, which go without any move.

use super::{Slab, is_slab_page, page_mask};
use crate::base::units::{PAGE, PageNo};
use crate::caches::geometry::Geometry;
use crate::caches::slab::lists::{FILLS, LOOKS, MERGED, NEW, SlabLists, UNLISTED};
use crate::caches::slab::pieces::Pieces;
use crate::pages::window::Window;

/// Of the places that have memory one in so many may stay free.
const WASTE: usize = 8;
/// Slabs of a list that are looked at for the fullest.
const SEARCH: usize = 16;

impl SlabLists {
    /// Whether the object at `addr` had better be elsewhere: then [`SlabLists::take_to_move`] has a place for it, unless others
    /// took them meanwhile. `false` for all that is free in its slab.
    pub(in crate::caches) fn should_move(&mut self, window: &Window, g: &Geometry, addr: usize) -> bool {
        self.source(window, g, addr).is_some_and(|source| self.target_for(source, g).is_some())
    }

    /// Takes a free object of the slab that the object at `addr` should move to; whether there is one, which is in `out` then.
    pub(in crate::caches) fn take_to_move(
        &mut self,
        window: &Window,
        g: &Geometry,
        addr: usize,
        out: &mut Pieces,
    ) -> bool {
        let source = self.source(window, g, addr);
        let Some(target) = source.and_then(|source| self.target_for(source, g)) else { return false };
        let n = self.take_from(target, g, 1, out);
        self.free -= n;
        self.relist_unchanged(target, g, target.free() - n as u32, target.look());
        n > 0
    }

    /// The first object from number `first` on, of the slab that begins at `page`, that is not free and should move. Its place is
    /// taken then, and is in `out`. `None` also for a slab of which an object was [refused](SlabLists::refused) before.
    pub(in crate::caches) fn next_to_move(
        &mut self,
        window: &Window,
        g: &Geometry,
        (page, first): (PageNo, usize),
        out: &mut Pieces,
    ) -> Option<usize> {
        let slab = self.slab_at(window, g, page)?;
        if first == 0 && slab.is_asked() {
            return None;
        }
        let is_free = |i: usize| slab.get(g.header_words() + i / 32) >> (i % 32) & 1 == 1;
        let object = (first..g.objects.into()).find(|&i| !is_free(i))?;
        self.take_to_move(window, g, slab.addr() + object * g.size as usize, out).then_some(object)
    }

    /// An object of the slab that begins at `source` does not move to `place`, which was taken for it. The slab is not asked again
    /// until an object of it comes or goes, and the place is free as before.
    pub(in crate::caches) fn refused(&mut self, window: &Window, g: &Geometry, source: PageNo, place: usize) {
        if let Some(source) = self.slab_at(window, g, source) {
            source.set_asked();
        }
        let Some(page) = window.page_of(place) else { return };
        let slab = Slab::of(window, g, page);
        let offset = place - slab.addr();
        let index = g.object_at(offset).0;
        let word = g.header_words() + index / 32;
        slab.set(word, slab.get(word) | 1 << (index % 32));
        self.free += 1;
        // Its page may have got memory.
        let is_new = slab.free_pages(g) & !slab.reported() & page_mask(offset, g.size as usize) != 0;
        let look = if is_new { NEW } else { slab.look() };
        if is_new {
            self.came_back += 1;
        }
        self.relist_unchanged(slab, g, slab.free() + 1, look);
    }

    /// The slab of this cache that begins at `page`.
    fn slab_at<'a>(&self, window: &'a Window, g: &Geometry, page: PageNo) -> Option<Slab<'a>> {
        let slab = Slab { window, page };
        (window.class_of(page) == g.class() && Slab::of(window, g, page).page == page && slab.is_of(g)).then_some(slab)
    }

    /// The slab of the object in use at `addr`, if objects of it are worth a move.
    fn source<'a>(&self, window: &'a Window, g: &Geometry, addr: usize) -> Option<Slab<'a>> {
        let page = window.page_of(addr)?;
        let slab = Slab::of(window, g, page);
        let is_here = is_slab_page(window, g, page) && slab.is_of(g) && self.is_object(window, g, addr);
        let is_sparse = is_here && slab.list() < MERGED && !self.has_merged(slab, g);
        (is_sparse && self.is_sparse(slab, g)).then_some(slab)
    }

    /// Slabs with objects in use, and free objects of them.
    fn slabs_in_use(&self, g: &Geometry) -> (usize, usize) {
        (self.slabs - self.empty, self.free.saturating_sub(self.empty * usize::from(g.objects)))
    }

    /// Whether so much with memory is free, beside `reserve` objects, that moves are worth it.
    pub(in crate::caches) fn is_wasteful(&self, g: &Geometry, reserve: usize) -> bool {
        let (objects, (slabs, free)) = (usize::from(g.objects), self.slabs_in_use(g));
        let without_memory = self.reported * PAGE / g.size as usize;
        let with_memory = (slabs * objects).saturating_sub(without_memory);
        let waste = free.saturating_sub(without_memory).saturating_sub(reserve);
        (g.size as usize) < PAGE && waste >= objects && waste * WASTE > with_memory
    }

    /// Whether the cache has much that is free, and `slab` little more in use than the mean.
    fn is_sparse(&self, slab: Slab<'_>, g: &Geometry) -> bool {
        let (slabs, free) = self.slabs_in_use(g);
        let used = slabs * usize::from(g.objects) - free;
        self.is_wasteful(g, 0) && slab.used(g) * slabs * 8 <= used * 9
    }

    /// Where objects of `source` go: the target, or a new one if that is full, has fewer objects than `source`, or is `source`.
    /// `None` where none is as full as `source`: that is the target for others from now on.
    fn target_for<'a>(&mut self, source: Slab<'a>, g: &Geometry) -> Option<Slab<'a>> {
        let (is_source, used) = (self.target == source.page, source.used(g));
        let old = Some(Slab { page: self.target, ..source }).filter(|old| old.page != PageNo::NONE && !is_source);
        if let Some(old) = old.filter(|&old| old.list() < MERGED && !self.has_merged(old, g) && old.used(g) >= used) {
            return Some(old);
        }
        // What was moved into the target stays there, unless another slab is fuller.
        let new = self.fullest(source, g).filter(|new| new.used(g) >= used + usize::from(is_source));
        // The search ends with the heads of the lists. Where nearly empty slabs lie there, what it misses becomes the target by
        // being looked at itself.
        self.target = new.map_or(source.page, |new| new.page);
        new
    }

    /// The slab with most objects of those at the heads of the fullest lists, without `source`. O(1).
    fn fullest<'a>(&self, source: Slab<'a>, g: &Geometry) -> Option<Slab<'a>> {
        let next = |slab: &Slab<'a>| Some(Slab { page: PageNo(slab.get(0)), ..*slab });
        let is_slab = |slab: &Slab<'a>| slab.page != PageNo::NONE;
        (0..FILLS).find_map(|fill| {
            let heads = &self.heads[fill * LOOKS..(fill + 1) * LOOKS];
            let of_list = |&head: &PageNo| {
                let first = Some(Slab { page: head, ..source }).filter(is_slab);
                core::iter::successors(first, move |slab| next(slab).filter(is_slab)).take(SEARCH)
            };
            let others = heads.iter().flat_map(of_list).filter(|slab| slab.page != source.page);
            others.filter(|slab| !self.has_merged(*slab, g)).max_by_key(|slab| slab.used(g))
        })
    }
}

impl Slab<'_> {
    /// Objects that are not free in it.
    fn used(&self, g: &Geometry) -> usize {
        usize::from(g.objects).saturating_sub(self.free() as usize)
    }

    /// Whether it seems to have no free object: for a look without the lock.
    pub(in crate::caches) fn seems_full(&self) -> bool {
        self.list() == UNLISTED
    }
}
