//! What the first word of a run's descriptor says: how many pages the run has, and whose it is.

use core::sync::atomic::Ordering::Relaxed;

use crate::pages::window::Window;

/// In a run's first word, beside its length: its pages are a page pool's.
const POOLED: u32 = 1 << 31;
/// Likewise: the run lies below 4 GiB only because NORMAL was short. Resized, it may move to any zone.
const FELL_BACK: u32 = 1 << 30;
const RUN_FLAGS: u32 = POOLED | FELL_BACK;

impl Window {
    /// How many pages the run that `page` heads has.
    #[inline]
    pub(crate) fn run_pages(&self, page: u32) -> usize {
        (self.word(page, 0).load(Relaxed) & !RUN_FLAGS) as usize
    }

    /// Whether the run that `page` heads is a page pool's.
    #[inline]
    pub(crate) fn is_pooled(&self, page: u32) -> bool {
        self.word(page, 0).load(Relaxed) & POOLED != 0
    }

    /// [`Window::set_run_pages`] of a run that is a page pool's.
    pub(crate) fn set_pooled(&self, page: u32, pages: usize) {
        self.word(page, 0).store(pages as u32 | POOLED, Relaxed);
    }

    /// Whether the run that `page` heads fell back to the zone that it lies in.
    pub(crate) fn is_fallen_back(&self, page: u32) -> bool {
        self.word(page, 0).load(Relaxed) & FELL_BACK != 0
    }

    /// [`Window::set_run_pages`] of a run that fell back to a lower zone.
    pub(crate) fn set_fallen_back(&self, page: u32, pages: usize) {
        self.word(page, 0).store(pages as u32 | FELL_BACK, Relaxed);
    }

    /// Notes how many pages the run that `page` heads has. By the run's owner, before its class-map entry is
    /// [`LARGE`](crate::pages::window::LARGE) or its run class.
    pub(crate) fn set_run_pages(&self, page: u32, pages: usize) {
        self.word(page, 0).store(pages as u32, Relaxed);
    }

    /// Notes the new length of a run in place. By the run's owner, which keeps others from freeing it.
    pub(crate) fn resize_run(&self, page: u32, pages: usize) {
        let flags = self.word(page, 0).load(Relaxed) & RUN_FLAGS;
        self.word(page, 0).store(pages as u32 | flags, Relaxed);
    }
}
