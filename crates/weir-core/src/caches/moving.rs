//! Objects of malloc's size classes that a program moves by itself, from sparse slabs to fuller ones
//! ([`super::slab::sparse`] says which and where to).
//!
//! A move goes past the CPUs' buckets and the depots, both ways. They hold what was freed last, which after a peak are places in
//! sparse slabs: a copy would land in another sparse slab, or in the place that the object before it left.

use crate::base::invalid_free::InvalidFree;
use crate::base::size_class::COUNT;
use crate::base::units::{Bytes, PageNo};
use crate::caches::cache::domain::Domain;
use crate::caches::geometry::Geometry;
use crate::caches::heap_caches::Caches;
use crate::caches::slab::Slab;
use crate::caches::slab::pieces::Pieces;
use crate::platform::Platform;
use crate::telemetry::stats;

impl<P: Platform> Caches<P> {
    /// Whether the object at `addr` of one of malloc's classes had better be elsewhere. `false` for all other addresses. O(1).
    pub(crate) fn should_move(&self, addr: usize) -> bool {
        let Some((g, domain)) = self.movable_at(addr) else { return false };
        domain.slabs.lock(&self.pages.platform).should_move(&self.pages.normal, &g, addr)
    }

    /// A free object of the same class in a fuller slab, for what lies at `addr`; `None` where that should stay. O(1).
    pub(crate) fn alloc_to_move(&self, addr: usize) -> Option<*mut u8> {
        let (g, domain) = self.movable_at(addr)?;
        let (window, mut taken, mut object) = (&self.pages.normal, Pieces::NONE, None);
        let mut slabs = domain.slabs.lock(&self.pages.platform);
        slabs.take_to_move(window, &g, addr, &mut taken);
        let (fresh, again) = slabs.take_resident();
        drop(slabs);
        self.pages.events.resident(&self.pages.platform, fresh, again);
        taken.for_each(window, &g, |taken| object = Some(taken));
        object
    }

    /// Puts an object of one of malloc's classes into its slab, at once. `false`: the address is none of theirs.
    pub(crate) fn free_moved(&self, object: *mut u8) -> bool {
        let Some((number, _)) = self.malloc_page(object as usize) else { return false };
        let cache = self.table.get(number);
        let g = cache.shape.get();
        if !g.begins_object(object as usize) {
            self.pages.platform.invalid_free(InvalidFree::InteriorPointer, object as usize, g.size as usize);
            return true;
        }
        stats::add(&cache.counts.slow_frees, 1);
        self.to_slabs(number, &[object]);
        self.pages.events.freed(&self.pages.platform, Bytes(g.size as usize));
        true
    }

    /// The class whose slab has `addr`, and the page.
    fn malloc_page(&self, addr: usize) -> Option<(usize, PageNo)> {
        let page = self.pages.normal.page_of(addr)?;
        let class = self.pages.normal.class_of(page).index();
        (1..=COUNT).contains(&class).then_some((class, page))
    }

    /// Geometry and domain of the slab that has `addr`; `None` also for a slab that is full, which most are.
    fn movable_at(&self, addr: usize) -> Option<(Geometry, &Domain)> {
        let (number, page) = self.malloc_page(addr)?;
        let cache = self.table.get(number);
        let g = cache.shape.get();
        if Slab::of(&self.pages.normal, &g, page).seems_full() {
            return None;
        }
        Some((g, self.domain_of(cache, page)))
    }
}
