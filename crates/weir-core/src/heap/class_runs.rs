//! Runs of run classes: from a CPU's bucket and back to it ([`crate::caches::run_caches`]), else from a zone and to it.

use core::ptr::null_mut;

use super::Heap;
use crate::base::invalid_free::InvalidFree;
use crate::base::run_class::{class_of_run, size_of_class};
use crate::base::units::PAGE;
use crate::caches::run_caches::Kept;
use crate::pages::node::ZoneKind;
use crate::platform::Platform;
use crate::platform::cpu_table::Pushed;
use crate::telemetry::stats;

impl<P: Platform> Heap<P> {
    /// A block of more than a size class holds, and whether it is known to be zero; null when memory is refused.
    pub(super) fn alloc_run(&self, size: usize, align: usize) -> (*mut u8, bool) {
        let class = if align <= PAGE { class_of_run(size) } else { None };
        let Some(class) = class else {
            self.caches.cpu.note_missed(self.platform(), 0);
            return self.alloc_large(size, align);
        };
        let run = self.caches.pop_run(class, size);
        if run.is_null() { self.take_class_run(class, size.div_ceil(PAGE)) } else { (run, false) }
    }

    #[cold]
    fn take_class_run(&self, class: usize, pages: usize) -> (*mut u8, bool) {
        stats::add(&self.platform().stats().large_allocs, 1);
        self.caches.cpu.note_missed(self.platform(), pages);
        let Ok((kind, run)) = self.take_run(pages, 0) else {
            self.caches.note_failures(class, 1);
            return (null_mut(), false);
        };
        if kind != ZoneKind::Normal {
            return (self.mark_run(kind, ZoneKind::Normal, run, pages), run.zero);
        }
        let window = self.pages().window(kind);
        window.set_run_pages(run.page, pages);
        self.caches.join_class(kind, run.page);
        (window.addr_of(run.page) as *mut u8, run.zero)
    }

    /// A free of a run of `class` that its CPU's bucket did not take.
    pub(super) fn free_class_run(&self, block: *mut u8, class: usize, pushed: Pushed) {
        let (p, size) = (self.platform(), size_of_class(class));
        let invalid = |what| p.invalid_free(what, block as usize, size);
        if !(block as usize).is_multiple_of(PAGE) {
            return invalid(InvalidFree::InteriorPointer);
        }
        let Some(page) = self.pages().normal.page_of(block as usize) else { return };
        if pushed == Pushed::Twice {
            return invalid(InvalidFree::DoubleFree);
        }
        let pages = self.pages().normal.run_pages(page);
        match self.caches.keep_run(class, block, pages) {
            Kept::Done => return,
            Kept::Twice => return invalid(InvalidFree::DoubleFree),
            Kept::Full => self.caches.give_freed(class, block),
        }
        self.slow_path_ends();
    }
}
