//! Runs of pages: what is larger than a size class and no longer than 4 MiB. A run grows in place as long as the pages behind
//! it are free. Most runs are of a run class (`class_runs`).

use core::ptr::null_mut;

use super::Heap;
use super::address_space::MOST;
use super::lookup::Found;
use crate::base::invalid_free::InvalidFree;
use crate::base::run::Run;
use crate::base::size_class::MAX_SIZE;
use crate::base::units::{MAX_RUN, PAGE, PAGEBLOCK_PAGES, order_of};
use crate::base::zone_class::ZoneClass;
use crate::pages::Short;
use crate::pages::node::ZoneKind;
use crate::pages::window::LARGE;
use crate::pages::zone::{PageRun, Purpose};
use crate::platform::Platform;
use crate::reclaim::Kind;
use crate::telemetry::stats;

impl<P: Platform> Heap<P> {
    /// A run or a block mapped on its own, and whether it is known to be zero; null when memory is refused.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_large(&self, size: usize, align: usize) -> (*mut u8, bool) {
        stats::add(&self.platform().stats().large_allocs, 1);
        if size > MOST || align > MOST {
            return (null_mut(), false);
        }
        let pages = size.div_ceil(PAGE);
        if pages > MAX_RUN || align > MAX_RUN * PAGE {
            // What is freed next may be this block's former copy.
            self.pages().note_large(pages);
            return self.map_block(pages * PAGE, align.max(PAGE));
        }
        let order = order_of(align.div_ceil(PAGE));
        let Ok((kind, run)) = self.take_run(pages, order) else { return (null_mut(), false) };
        (self.mark_run(kind, ZoneKind::Normal, run, pages), run.zero)
    }

    /// Takes a run of pages of NORMAL, the highest zone of such a request; it falls back to the next lower one.
    pub(super) fn take_run(&self, pages: usize, order: u32) -> Result<(ZoneKind, PageRun), Short> {
        let take = || self.caches.take_pages(pages, order, Purpose::Run).map(|run| (ZoneKind::Normal, run));
        let low = || self.pages().take(ZoneKind::Low32, pages, order, Purpose::Run).map(|run| (ZoneKind::Low32, run));
        let found = take().or_else(|_| self.reclaim_for(pages * PAGE, take));
        let found = found.or_else(|_| self.fall_back(pages, order, low))?;
        self.slow_path_ends();
        Ok(found)
    }

    /// Makes all of a fresh block read as zero, which it does already if `is_zero`.
    ///
    /// # Safety
    /// The block was allocated here just now, or is null, and nobody has it yet.
    #[cold]
    pub(super) unsafe fn zeroed(&self, (block, is_zero): (*mut u8, bool)) -> *mut u8 {
        if !block.is_null() && !is_zero {
            // All of it, as for objects: a retained block may be longer than its last page.
            // SAFETY: the block was allocated here just now, and the caller does not have it yet.
            unsafe {
                let len = self.usable_size(block);
                self.mapped().wipe(Run { addr: block as usize, len });
            }
        }
        block
    }

    /// A block mapped on its own, and whether it is known to be zero; null when memory is refused.
    pub(super) fn map_block(&self, len: usize, align: usize) -> (*mut u8, bool) {
        let map = || self.mapped().map_block(len, align);
        let Ok(block) = map().or_else(|_| self.map_again(len, map)) else { return (null_mut(), false) };
        if block.expected > 0 {
            // Before the program touches it.
            self.caches.flush_before(block.expected);
            self.make_room(Kind::RoomForBlock, block.expected / PAGE);
            // Most of a large block may never be touched: readings tell what is.
            self.note_resident((block.expected / PAGE).min(PAGEBLOCK_PAGES));
        }
        (block.addr as *mut u8, block.zero)
    }

    /// Allocates whole pages below 4 GiB, for compressed pointers and generated code; null when there are none.
    pub fn alloc_low32(&self, size: usize) -> *mut u8 {
        let pages = size.div_ceil(PAGE).max(1);
        if pages > MAX_RUN {
            return null_mut();
        }
        let take = || self.pages().take(ZoneKind::Low32, pages, 0, Purpose::Run);
        let Ok(run) = take().or_else(|_| self.reclaim_for(pages * PAGE, take)) else {
            self.wake_node_balancer(order_of(pages), ZoneClass::Low32, true);
            return null_mut();
        };
        self.slow_path_ends();
        self.mark_run(ZoneKind::Low32, ZoneKind::Low32, run, pages)
    }

    /// Takes pages that a request could have had of NORMAL from the zone below 4 GiB, if there is one and it does not need them
    /// for requests that can use no other.
    #[cold]
    fn fall_back<T>(&self, pages: usize, order: u32, take: impl FnOnce() -> Result<T, Short>) -> Result<T, Short> {
        let order = order.max(order_of(pages));
        if self.keeps_low32(order) { Err(Short) } else { take() }
    }

    /// Makes pages taken from a zone of class `kind` the run of a request that `highest` was the highest zone of.
    pub(super) fn mark_run(&self, kind: ZoneKind, highest: ZoneKind, run: PageRun, pages: usize) -> *mut u8 {
        let window = self.pages().window(kind);
        match kind == highest {
            true => window.set_run_pages(run.page, pages),
            false => window.set_fallen_back(run.page, pages),
        }
        window.set_class(run.page, 1, LARGE);
        window.addr_of(run.page) as *mut u8
    }

    /// A free of a block on a page that is no slab's, or outside the window.
    pub(super) fn free_run(&self, block: *mut u8) {
        stats::add(&self.platform().stats().free_misses, 1);
        match self.lookup(block as usize) {
            Some(Found::Run { page, kind, .. }) => {
                let window = self.pages().window(kind);
                // Of two threads that free it at once, one clears the mark.
                if !window.unmark_run(page, LARGE) {
                    return self.platform().invalid_free(InvalidFree::DoubleFree, block as usize, 0);
                }
                self.unsample(block);
                // Read again: the run that was found may have been freed meanwhile, by a wrong free, and another be here now.
                let pages = window.run_pages(page);
                let is_former_copy = self.pages().give_by(kind, page, pages, |zone, window| {
                    zone.give(window, page, pages, 0);
                    zone.growth.give(pages)
                });
                if is_former_copy {
                    self.pages().release_run(kind, page, pages);
                }
                self.slow_path_ends();
            }
            Some(Found::Mapped(len)) => {
                self.unsample(block);
                self.mapped().note_mapped_free(len);
                self.mapped().free_mapped(block as usize);
            }
            _ => self.platform().invalid_free(self.why_invalid(block as usize), block as usize, 0),
        }
    }

    /// Resizes a run in place, if that can be done; whether it was.
    pub(super) fn resize_run(&self, kind: ZoneKind, page: u32, pages: usize, size: usize) -> bool {
        let wanted = size.div_ceil(PAGE);
        if size <= MAX_SIZE && kind == ZoneKind::Normal || wanted > MAX_RUN {
            return false;
        }
        if wanted < pages {
            return wanted >= pages / 2 && self.cut(kind, page, pages, wanted);
        }
        wanted == pages || self.extend(kind, page, pages, wanted)
    }

    fn cut(&self, kind: ZoneKind, page: u32, pages: usize, wanted: usize) -> bool {
        self.caches.leave_class(kind, page);
        self.pages().window(kind).resize_run(page, wanted);
        self.caches.join_class(kind, page);
        self.pages().give(kind, page + wanted as u32, pages - wanted, 0);
        true
    }

    fn extend(&self, kind: ZoneKind, page: u32, pages: usize, wanted: usize) -> bool {
        let more = wanted - pages;
        // A run that fell back grows by what falls back.
        if self.pages().window(kind).is_fallen_back(page) && self.keeps_low32(order_of(more)) {
            return false;
        }
        let extend = || self.pages().extend(kind, page + pages as u32, more).is_ok();
        // What lies behind may be in a bucket; a copy costs more than to take it from there.
        let is_extended = extend() || self.caches.flush_own_runs() && extend();
        if !is_extended {
            return false;
        }
        self.caches.leave_class(kind, page);
        self.pages().window(kind).resize_run(page, wanted);
        self.caches.join_class(kind, page);
        self.slow_path_ends();
        true
    }
}
