//! How much of a slab is in use, and how much of it resident, for figures.

use super::{Slab, is_slab_page, page_mask};
use crate::base::units::{Bytes, PAGE, PageNo, Pages};
use crate::caches::geometry::Geometry;
use crate::caches::slab::lists::SlabLists;
use crate::pages::window::Window;

/// Usage of one slab, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlabUsage {
    /// Objects that are not free in the slab: the program's, those in a bucket or depot, and isolated ones.
    pub out: usize,
    /// Bytes of objects out that lie on pages that are not resident.
    pub out_untouched: usize,
    /// Resident pages.
    pub resident: usize,
    /// Resident pages without an object that is out.
    pub free_resident: usize,
}

impl Slab<'_> {
    /// Bytes of objects that are out and lie on `pages`.
    fn bytes_out_on(&self, g: &Geometry, pages: u32) -> usize {
        let (size, mut bytes) = (g.size as usize, 0);
        let is_out = |i: &usize| self.get(g.header_words() + i / 32) >> (i % 32) & 1 == 0;
        for offset in (0..usize::from(g.objects)).filter(is_out).map(|i| i * size) {
            let mut touched = page_mask(offset, size) & pages;
            while touched != 0 {
                let page = touched.trailing_zeros() as usize * PAGE;
                bytes += (offset + size).min(page + PAGE) - offset.max(page);
                touched &= touched - 1;
            }
        }
        bytes
    }
}

impl SlabLists {
    /// Usage of the slab that begins at `page`, of whose pages those in `resident` are; `None` for that: all are
    /// that are not reported. `None`: no slab of this cache begins there, or it is on its way from or to the zone.
    pub(crate) fn usage_of(
        &self,
        window: &Window,
        g: &Geometry,
        page: PageNo,
        resident: Option<u32>,
    ) -> Option<SlabUsage> {
        let slab = Slab::of(window, g, page);
        if slab.page != page || !is_slab_page(window, g, page) || !slab.is_of(g) {
            return None;
        }
        let all = u32::MAX >> (32 - u32::from(g.pages));
        let resident = all & resident.unwrap_or(!slab.reported());
        let free = match slab.free() {
            0 => 0,
            free if free == u32::from(g.objects) => all,
            _ => slab.free_pages(g),
        };
        let gone = all & !resident & !free;
        let bytes = |pages: u32| pages.count_ones() as usize * PAGE;
        Some(SlabUsage {
            // Saturating: the number may have become another cache's since its geometry was read.
            out: usize::from(g.objects).saturating_sub(slab.free() as usize) * g.size as usize,
            out_untouched: if gone == 0 { 0 } else { slab.bytes_out_on(g, gone) },
            resident: bytes(resident),
            free_resident: bytes(resident & free),
        })
    }

    /// Bytes that count as resident of all slabs: all but reported pages.
    pub(crate) fn resident_bytes(&self, g: &Geometry) -> Bytes {
        Pages((self.slabs * usize::from(g.pages)).saturating_sub(self.reported)).bytes()
    }
}
