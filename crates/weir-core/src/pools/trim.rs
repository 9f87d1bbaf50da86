//! Idle runs go back to the zones, a batch at a time, with no lock held while they do.

use super::idle::pages_of;
use super::page_pool::{Inner, PagePool};
use super::page_pools::PoolsOn;
use crate::pages::node::ZoneKind;
use crate::pages::window::LARGE;
use crate::platform::Platform;

/// Runs that are taken at a time, as many as pageblocks are isolated at a time.
pub(super) const BATCH: usize = 16;

impl<P: Platform> PoolsOn<'_, P> {
    /// Gives idle runs to the zones until at most `keep` idle pages are left; returns the pages.
    pub(super) fn trim(&self, pool: &PagePool, keep: usize) -> usize {
        self.trim_noting(pool, keep, |_, _| ())
    }

    /// The same for a pressure event.
    pub(super) fn squeeze(&self, pool: &PagePool, keep: usize) -> usize {
        let event = self.pools.squeeze.generation();
        self.trim_noting(pool, keep, |inner, pages| inner.note_squeezed(pages, event))
    }

    fn trim_noting(&self, pool: &PagePool, keep: usize, note: impl Fn(&mut Inner, usize)) -> usize {
        let (window, mut sum) = (self.window(), 0);
        loop {
            let (mut batch, mut count, mut pages) = ([(0, 0); BATCH], 0, 0);
            let mut inner = pool.inner.lock(self.platform());
            while count < BATCH && inner.idle.pages() > keep {
                let Some(run) = inner.idle.give_up(window) else { break };
                batch[count] = run;
                pages += pages_of(run.1);
                count += 1;
            }
            note(&mut inner, pages);
            drop(inner);
            if count == 0 {
                return sum;
            }
            for &(page, length) in &batch[..count] {
                // Off the pool's list: this thread alone has it.
                window.unmark_run(page, LARGE);
                self.pages.give(ZoneKind::Normal, page, pages_of(length), 0);
            }
            sum += pages;
        }
    }

    /// What the owner of a pool does: squeezes it in a window, or for one that has passed since the last time; else
    /// trims it to
    /// `max_idle_pages`. Returns the pages squeezed, which the balancer is to release.
    pub(crate) fn tend(&self, pool: &PagePool) -> usize {
        let p = self.platform();
        // Read before the idle runs are looked at (`mod.rs`).
        let event = self.pools.squeeze.generation();
        let is_new = core::mem::replace(&mut pool.inner.lock(p).seen, event) != event;
        let ns = pool.squeeze_ns(p);
        if ns > 0 && (is_new || self.pools.squeeze.is_open(&pool.closed, ns, || p.now())) {
            let pages = self.squeeze(pool, 0);
            self.pools.note_squeezed(pages);
            return pages;
        }
        self.trim(pool, pool.max_idle_pages(p));
        0
    }

    /// [`PoolsOn::tend`] by a thread of the program's; the balancer then releases what it gave up.
    pub(crate) fn tend_and_release(&self, pool: &PagePool) -> usize {
        let pages = self.tend(pool);
        if pages > 0 {
            self.pools.tend_at(self.platform(), self.platform().now());
        }
        pages
    }

    /// Tends the pools that the balancer is the owner of.
    pub(crate) fn tend_all(&self) {
        self.pools.each(self.platform(), 0, |pool| {
            if !pool.is_tended {
                self.tend(pool);
            }
        });
    }

    /// Sleeps until there is a pressure event that the pool was not tended for, for `ns` at most, or for no reason.
    pub(crate) fn wait(&self, pool: &PagePool, ns: Option<u64>) {
        let seen = pool.inner.lock(self.platform()).seen;
        self.pools.squeeze.wait(self.platform(), seen, ns);
    }

    /// Gives all idle runs up, for the end of a pool.
    pub(crate) fn empty(&self, pool: &PagePool) {
        self.trim(pool, 0);
    }
}
