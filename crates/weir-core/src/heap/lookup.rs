//! Lookup of an address: an object, a run, a block mapped on its own; and what is wrong with one that is none of these.

use super::Heap;
use super::large::Large;
use crate::base::invalid_free::InvalidFree;
use crate::base::units::{MAX_RUN, PAGE, PageNo, Pages};
use crate::pages::node::ZoneKind;
use crate::pages::window::{NOTHING, heads_run};
use crate::platform::Platform;

/// Block that begins at an address.
pub(super) enum Found {
    /// An object of a cache, by the cache's number.
    Object(usize),
    /// A run of pages.
    Run { page: PageNo, pages: Pages, kind: ZoneKind },
    /// A block mapped on its own, of so many bytes.
    Mapped(usize),
}

impl<P: Platform> Heap<P> {
    /// Bytes that the block at `block` can hold; 0 for null.
    ///
    /// # Safety
    /// `block` is null or was allocated here and not freed.
    pub unsafe fn usable_size(&self, block: *mut u8) -> usize {
        if block.is_null() {
            return 0;
        }
        match self.lookup(block as usize) {
            Some(Found::Object(number)) => self.caches.size_of(number),
            Some(Found::Run { pages, .. }) => pages.length(),
            Some(Found::Mapped(len)) => len,
            None => {
                let what = match self.large().why_invalid(block as usize) {
                    InvalidFree::PoolPages => InvalidFree::SizeOfPoolPages,
                    _ => InvalidFree::SizeOfNoBlock,
                };
                self.platform().invalid_free(what, block as usize, 0);
                0
            }
        }
    }

    /// Whether a block of this heap begins at `addr`.
    pub fn is_block(&self, addr: usize) -> bool {
        self.lookup(addr).is_some()
    }

    /// Whether `addr` is on a page of the heap that is in use. In its windows may also be holes, with mappings of others in them.
    pub fn covers(&self, addr: usize) -> bool {
        ZoneKind::ALL.into_iter().any(|kind| {
            let window = self.pages().window(kind);
            window.page_of(addr).is_some_and(|page| window.class_of(page) != NOTHING)
        })
    }

    /// Finds the block that begins at `addr`; `None`: no block does.
    pub(super) fn lookup(&self, addr: usize) -> Option<Found> {
        self.lookup_pages(addr).unwrap_or_else(|| self.mapped().len_of(addr).map(Found::Mapped))
    }

    /// Finds the object or run that begins at `addr`, `Some(None)` if none does; `None` where the address is of no page in use: what
    /// may begin there is a block mapped on its own.
    pub(super) fn lookup_pages(&self, addr: usize) -> Option<Option<Found>> {
        for kind in ZoneKind::ALL {
            let window = self.pages().window(kind);
            let Some(page) = window.page_of(addr) else { continue };
            return Some(match window.class_of(page) {
                // Perhaps the heap grew past a block that is mapped on its own.
                NOTHING => break,
                class if heads_run(class) && addr.is_multiple_of(PAGE) && !window.is_pooled(page) => {
                    // The run's owner, who asks, keeps its length from changing; by a wrong pointer it may be an old one.
                    Some(Found::Run { page, pages: window.run_pages(page), kind })
                }
                class if heads_run(class) => None,
                class => self.caches.number_of(class, page).map(Found::Object),
            });
        }
        None
    }
}

impl<P: Platform> Large<'_, P> {
    /// Why no block begins at `addr`, which is on no slab's page.
    pub(super) fn why_invalid(self, addr: usize) -> InvalidFree {
        let at = ZoneKind::ALL.into_iter().find_map(|kind| Some((kind, self.heap.pages().window(kind).page_of(addr)?)));
        let Some((kind, page)) = at else {
            let was_freed = self.heap.mapped().was_freed(addr);
            return if was_freed { InvalidFree::DoubleFree } else { InvalidFree::ForeignPointer };
        };
        let window = self.heap.pages().window(kind);
        let zone = self.heap.pages().zone_of(kind, page).lock(self.heap.platform());
        let head = window.head(page, MAX_RUN, |class| class != NOTHING);
        if let Some(head) = head
            && heads_run(window.class_of(head))
            // The program's threads may free that run meanwhile: then the length is an old one, and the answer one of two
            // that are both right.
            && page - head < window.run_pages(head)
        {
            let is_pools = window.is_pooled(head) && window.addr_of(head) == addr;
            return if is_pools { InvalidFree::PoolPages } else { InvalidFree::InteriorPointer };
        }
        let is_hole = zone.is_hole(window, page.block());
        if is_hole { InvalidFree::ForeignPointer } else { InvalidFree::DoubleFree }
    }
}
