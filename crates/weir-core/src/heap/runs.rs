//! Runs of pages: blocks that are larger than a size class and no longer than 4 MiB. A run grows in place as long as the pages
//! behind it are free. Most runs are of a run class: they come from a CPU's bucket and go back to it
//! ([`crate::caches::cpu::runs`]). Else they come from a zone and go back to that.

use core::alloc::Layout;
use core::ptr::null_mut;

use super::Heap;
use super::blocks::MOST;
use super::large::Large;
use super::lookup::Found;
use crate::base::invalid_free::InvalidFree;
use crate::base::run_class::{self, class_of_run, size_of_class};
use crate::base::size_class::MAX_SIZE;
use crate::base::units::{Class, MAX_RUN, MAX_RUN_ORDER, Order, PAGE, PageNo, Pages, Span, order_of};
use crate::base::zone_class::{ZoneClass, ZoneList};
use crate::caches::cpu::runs::Kept;
use crate::pages::Short;
use crate::pages::node::ZoneKind;
use crate::pages::window::LARGE;
use crate::pages::zone::{PageRun, Purpose};
use crate::platform::Platform;
use crate::platform::cpu_table::Pushed;
use crate::telemetry::stats;

impl<P: Platform> Large<'_, P> {
    /// A block of more than a size class holds, and whether it is known to be zero; null when memory is refused.
    pub(super) fn alloc_run(self, layout: Layout) -> (*mut u8, bool) {
        let (size, align) = (layout.size(), Order::of_align(layout.align()));
        let class = if align <= MAX_RUN_ORDER { class_of_run(size) } else { None };
        let Some(class) = class else {
            if size > MAX_RUN.length()
                && let Some(block) = self.heap.mapped().take_here(size, align)
            {
                return (block as *mut u8, false);
            }
            self.heap.caches.cpu.note_missed(self.heap.platform(), Pages::ZERO);
            return self.alloc_large(layout);
        };
        let run = self.heap.caches.pop_run(class, size, align);
        if !run.is_null() {
            return (run, false);
        }
        self.take_class_run(class, Pages::to_hold(size), align)
    }

    #[cold]
    fn take_class_run(self, class: Class, pages: Pages, align: Order) -> (*mut u8, bool) {
        let (p, caches) = (self.heap.platform(), &self.heap.caches);
        stats::add(&p.stats().large_allocs, 1);
        let cut = caches.cut_waiting(class, pages, align);
        if !cut.is_null() {
            self.heap.direct().slow_path_ends();
            return (cut, false);
        }
        caches.cpu.note_came(p, class, 1);
        caches.cpu.note_missed(p, pages);
        let taken = self.take_run(pages, align);
        if let Ok((ZoneKind::Normal, run)) = taken {
            let block = self.make_class_run(class, &run, pages);
            caches.cpu.note_asked(p, (class, block));
            return (block, run.zero);
        }
        caches.cpu.note_came(p, class, -1);
        match taken {
            Ok((kind, run)) => (self.mark_run(kind, ZoneKind::Normal, run, pages), run.zero),
            Err(Short) => {
                caches.note_failures(class.index(), 1);
                (null_mut(), false)
            }
        }
    }

    /// A run for `size` bytes, which are of a class, of a bucket or of NORMAL as it is; null: there is none.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_run_at_hand(self, size: usize) -> *mut u8 {
        let (Some(class), pages) = (class_of_run(size), Pages::to_hold(size)) else { return null_mut() };
        let run = self.heap.caches.pop_run(class, size, Order::PAGE);
        if !run.is_null() {
            return run;
        }
        let Ok(run) = self.heap.caches.take_pages(pages, Order::PAGE, Purpose::Run) else { return null_mut() };
        stats::add(&self.heap.platform().stats().large_allocs, 1);
        self.heap.caches.cpu.note_missed(self.heap.platform(), pages);
        self.heap.caches.cpu.note_came(self.heap.platform(), class, 1);
        let block = self.make_class_run(class, &run, pages);
        self.heap.direct().slow_path_ends();
        block
    }

    /// Makes pages taken from NORMAL a run of `class`, which is that of their length. It is counted already: behind these
    /// stores, to cold lines mostly, a locked instruction would wait for them.
    fn make_class_run(self, class: Class, run: &PageRun, pages: Pages) -> *mut u8 {
        let window = self.heap.pages().window(ZoneKind::Normal);
        window.set_run_pages(run.page, pages);
        window.set_class(Span::new(run.page, Pages(1)), class);
        window.addr_of(run.page) as *mut u8
    }

    /// A free of a run of `class` that its CPU's bucket did not take.
    pub(super) fn free_class_run(self, block: *mut u8, class: Class, pushed: Pushed) {
        let (p, size) = (self.heap.platform(), size_of_class(class));
        let invalid = |what| p.invalid_free(what, block as usize, size);
        if !(block as usize).is_multiple_of(PAGE) {
            return invalid(InvalidFree::InteriorPointer);
        }
        let Some(page) = self.heap.pages().normal.page_of(block as usize) else { return };
        if pushed == Pushed::Twice {
            return invalid(InvalidFree::DoubleFree);
        }
        let (waiting, pages) = (self.heap.caches.cpu.peek_waiting(p), self.heap.pages().normal.run_pages(page));
        if waiting == Some((class, block)) {
            return invalid(InvalidFree::DoubleFree);
        }
        let is_before = waiting.is_some_and(|(_, waiting)| waiting as usize == block as usize + pages.length());
        if is_before && self.heap.caches.rejoin(class, block, pages) {
            return self.heap.direct().slow_path_ends();
        }
        let waits_first = self.heap.caches.waits_first((class, block), pages);
        match if waits_first { Kept::Full } else { self.heap.caches.keep_run(class, block, pages) } {
            Kept::Done => return,
            Kept::Twice => return invalid(InvalidFree::DoubleFree),
            Kept::Full => self.heap.caches.give_freed(class, block, pages),
        }
        self.heap.direct().slow_path_ends();
    }

    /// A run or a block mapped on its own, and whether it is known to be zero; null when memory is refused.
    #[cold]
    #[inline(never)]
    pub(super) fn alloc_large(self, layout: Layout) -> (*mut u8, bool) {
        let (size, align) = (layout.size().max(1), Order::of_align(layout.align()));
        stats::add(&self.heap.platform().stats().large_allocs, 1);
        if size > MOST || layout.align() > MOST {
            return (null_mut(), false);
        }
        let pages = Pages::to_hold(size);
        if pages > MAX_RUN || align > MAX_RUN_ORDER {
            let (block, is_new) = self.map_block(pages, align);
            if is_new {
                // What is freed next may be this block's former copy.
                self.heap.pages().note_large(pages);
            }
            return (block, is_new);
        }
        let Ok((kind, run)) = self.take_run(pages, align) else { return (null_mut(), false) };
        (self.mark_run(kind, ZoneKind::Normal, run, pages), run.zero)
    }

    /// Takes a run of pages of NORMAL, the highest zone of such a request; it falls back to the next lower one.
    pub(super) fn take_run(self, pages: Pages, order: Order) -> Result<(ZoneKind, PageRun), Short> {
        let take = || self.heap.caches.take_pages(pages, order, Purpose::Run).map(|run| (ZoneKind::Normal, run));
        let low =
            || self.heap.pages().take(ZoneKind::Low32, pages, order, Purpose::Run).map(|run| (ZoneKind::Low32, run));
        let found = take().or_else(|_| self.heap.direct().reclaim_for(pages.bytes(), take));
        let found = found.or_else(|_| self.fall_back(pages, order, low))?;
        self.heap.direct().slow_path_ends();
        Ok(found)
    }

    /// Takes pages that a request could have had of NORMAL from the zone below 4 GiB. There must be one, and it must not need
    /// them for requests that can use no other.
    #[cold]
    fn fall_back<T>(self, pages: Pages, order: Order, take: impl FnOnce() -> Result<T, Short>) -> Result<T, Short> {
        let order = order.0.max(order_of(pages));
        if self.heap.reclaim().keeps_low32(order) { Err(Short) } else { take() }
    }

    /// Makes pages taken from a zone of class `kind` the run of a request that `highest` was the highest zone of.
    pub(super) fn mark_run(self, kind: ZoneKind, highest: ZoneKind, run: PageRun, pages: Pages) -> *mut u8 {
        let window = self.heap.pages().window(kind);
        match kind == highest {
            true => window.set_run_pages(run.page, pages),
            false => window.set_fallen_back(run.page, pages),
        }
        window.set_class(Span::new(run.page, Pages(1)), LARGE);
        window.addr_of(run.page) as *mut u8
    }

    /// A free of a block on a page that is no slab's, or outside the window.
    pub(super) fn free_run(self, block: *mut u8) {
        if self.heap.mapped().is_here(block as usize) {
            self.heap.samples().unsample(block);
            if self.heap.mapped().free_here(block as usize) {
                return;
            }
        }
        stats::add(&self.heap.platform().stats().free_misses, 1);
        match self.heap.lookup_pages(block as usize) {
            Some(Some(Found::Run { page, kind, .. })) => {
                let window = self.heap.pages().window(kind);
                // Of two threads that free it at once, one clears the mark.
                if !window.unmark_run(page, LARGE) {
                    return self.heap.platform().invalid_free(InvalidFree::DoubleFree, block as usize, 0);
                }
                self.heap.samples().unsample(block);
                // Read again: the run that was found may have been freed meanwhile, by a wrong free, and another be here now.
                let pages = Span::new(page, window.run_pages(page));
                let is_former_copy = self.heap.pages().give_by(kind, pages, |zone, window| {
                    zone.give(window, pages, 0);
                    zone.growth.give(pages.len)
                });
                if is_former_copy {
                    self.heap.pages().release_run(kind, pages);
                }
                self.heap.direct().slow_path_ends();
            }
            None => {
                self.heap.samples().unsample(block);
                if !self.heap.mapped().free_mapped(block as usize) {
                    self.heap.platform().invalid_free(self.why_invalid(block as usize), block as usize, 0);
                }
            }
            _ => self.heap.platform().invalid_free(self.why_invalid(block as usize), block as usize, 0),
        }
    }

    /// Resizes a run in place, if that can be done; whether it was.
    pub(super) fn resize_run(self, kind: ZoneKind, page: PageNo, pages: Pages, size: usize) -> bool {
        let wanted = Pages::to_hold(size);
        if size <= MAX_SIZE && kind == ZoneKind::Normal || wanted > MAX_RUN {
            return false;
        }
        if wanted < pages {
            return wanted >= pages / 2 && self.cut(kind, page, pages, wanted);
        }
        // Only a run of a class is known to stay with its slack.
        let is_of_class = run_class::contains(self.heap.pages().window(kind).class_of(page));
        let roomy = if is_of_class { Pages::to_hold(self.heap.with_slack(pages, size)) } else { wanted };
        let is_extended = wanted == pages || roomy > wanted && self.extend(kind, page, pages, roomy);
        is_extended || self.extend(kind, page, pages, wanted) || {
            // What lies behind may be in a bucket; a copy costs more than to take it from there.
            self.heap.caches.flush_own_runs() && self.extend(kind, page, pages, wanted)
        }
    }

    fn cut(self, kind: ZoneKind, page: PageNo, pages: Pages, wanted: Pages) -> bool {
        self.heap.caches.leave_class(kind, page);
        self.heap.pages().window(kind).resize_run(page, wanted);
        self.heap.caches.join_class(kind, page);
        self.heap.pages().give(kind, Span::new(page + wanted, pages - wanted), 0);
        true
    }

    fn extend(self, kind: ZoneKind, page: PageNo, pages: Pages, wanted: Pages) -> bool {
        let more = wanted - pages;
        // A run that fell back grows by what falls back.
        if self.heap.pages().window(kind).is_fallen_back(page) && self.heap.reclaim().keeps_low32(order_of(more)) {
            return false;
        }
        if self.heap.pages().extend(kind, Span::new(page + pages, more)).is_err() {
            return false;
        }
        self.heap.caches.leave_class(kind, page);
        self.heap.pages().window(kind).resize_run(page, wanted);
        self.heap.caches.join_class(kind, page);
        self.heap.direct().slow_path_ends();
        true
    }

    /// Whether a run was asked for below 4 GiB, where it has to stay.
    pub(super) fn is_held_low(self, kind: ZoneKind, page: PageNo) -> bool {
        kind == ZoneKind::Low32 && !self.heap.pages().window(kind).is_fallen_back(page)
    }
}

impl<P: Platform> Heap<P> {
    /// Allocates whole pages below 4 GiB, for compressed pointers and generated code; null when there are none.
    pub fn alloc_low32(&self, size: usize) -> *mut u8 {
        let pages = Pages::to_hold(size).max(Pages(1));
        if pages > MAX_RUN {
            return null_mut();
        }
        let take = || self.pages().take(ZoneKind::Low32, pages, Order::PAGE, Purpose::Run);
        let evict = || match self.reclaim().has_evictable(ZoneClass::Low32) {
            false => Err(Short),
            true => self.direct().stalled(|| self.direct().reclaim_of_zone((ZoneClass::Low32, 0), pages.bytes(), take)),
        };
        let Ok(run) = take().or_else(|_| evict()).or_else(|_| self.take_low32_again(pages, take)) else {
            self.reclaim().wake_node_balancer(order_of(pages), ZoneList::Low32, true);
            return null_mut();
        };
        self.direct().slow_path_ends();
        self.large().mark_run(ZoneKind::Low32, ZoneKind::Low32, run, pages)
    }

    /// Takes pages below 4 GiB once more. Only where the hard limit is in the way caches elsewhere give way for them: what those
    /// hold makes no room below 4 GiB.
    #[cold]
    fn take_low32_again(&self, pages: Pages, take: impl Fn() -> Result<PageRun, Short>) -> Result<PageRun, Short> {
        if self.pages().is_hard_limit_in_the_way(ZoneKind::Low32, pages) {
            return self.direct().reclaim_for_room(pages.bytes(), take);
        }
        self.direct().stalled(|| {
            // What is missing may be isolated.
            self.pages().pass_batches();
            take().or_else(|Short| {
                // Or the system counts what is mapped, of which retained blocks are no use to the program.
                self.mapped().unmap_retained();
                take()
            })
        })
    }
}
