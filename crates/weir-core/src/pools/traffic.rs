//! Runs go out of a pool and come back (get, put), and idle ones go back to the zones.

use super::idle::{self, NotInFlight, length_of, pages_of};
use super::page_pool::{Inner, PagePool};
use super::page_pools::PoolsOn;
use crate::base::invalid_free::InvalidFree;
use crate::base::time::Nanos;
use crate::base::units::{Order, PAGE, PageNo, Pages, Span};
use crate::pages::Short;
use crate::pages::node::ZoneKind;
use crate::pages::window::{LARGE, Window};
use crate::pages::zone::Purpose;
use crate::platform::Platform;

/// How long a pool with runs in flight may have more than `max_idle_pages` idle (blkback's `LRU_INTERVAL`), ns.
const OVERSHOOT: Nanos = Nanos(100_000_000);
/// How long what puts give up in a window waits to be released in one go, ns: blkback's window.
const RELEASE: Nanos = Nanos(10_000_000);

impl<P: Platform> PoolsOn<'_, P> {
    pub(super) fn window(&self) -> &Window {
        &self.pages.normal
    }

    /// An idle run of at least `pages` pages (1 to [`crate::base::units::MAX_RUN`]).
    pub(crate) fn get_idle(&self, pool: &PagePool, pages: Pages) -> Option<usize> {
        let length = length_of(pages);
        let mut inner = pool.inner.lock(self.platform());
        let page = inner.idle.get(self.window(), length);
        inner.note_get(pages_of(length), page.is_none());
        let page = page?;
        inner.in_flight += pages_of(length);
        Some(self.window().addr_of(page))
    }

    /// A run of at least `pages` pages of the zones, where none is idle in the pool.
    pub(crate) fn get_fresh(&self, pool: &PagePool, pages: Pages) -> Result<usize, Short> {
        let pages = pages_of(length_of(pages));
        let run = self.pages.take(ZoneKind::Normal, pages, Order::PAGE, Purpose::Run)?;
        let window = self.window();
        window.set_pooled(run.page, pages);
        idle::own(window, run.page, pool.mark());
        window.set_class(Span::new(run.page, Pages(1)), LARGE);
        pool.inner.lock(self.platform()).in_flight += pages;
        Ok(window.addr_of(run.page))
    }

    /// Takes runs back, whole ones; null is allowed. Those that are not in flight are named and left alone. A put of
    /// none looks at what is idle as any other: `max_idle_pages` may have been lowered since the last one.
    pub(crate) fn put(&self, pool: &PagePool, runs: &[*mut u8]) {
        let mut rest = runs;
        let (idle, in_flight) = loop {
            let (batch, after) = rest.split_at(rest.len().min(BATCH));
            let now = self.put_some(pool, batch);
            if after.is_empty() {
                break now;
            }
            rest = after;
        };
        self.after_put(pool, idle, in_flight);
    }

    /// Takes at most [`BATCH`] runs back; returns the pages that are idle and in flight then.
    fn put_some(&self, pool: &PagePool, runs: &[*mut u8]) -> (Pages, Pages) {
        let (mut found, mut count) = ([(PageNo(0), 0); BATCH], 0);
        for run in runs.iter().map(|run| run.addr()).filter(|&run| run != 0) {
            match self.claim(pool, run) {
                Ok(run) => {
                    found[count] = run;
                    count += 1;
                }
                Err(why) => self.platform().invalid_free(why, run, 0),
            }
        }
        let mut inner = pool.inner.lock(self.platform());
        for &(page, length) in &found[..count] {
            inner.idle.put(self.window(), page, length);
            inner.in_flight -= pages_of(length);
        }
        (inner.idle.pages(), inner.in_flight)
    }

    /// A run that is put: its first page and its length.
    fn claim(&self, pool: &PagePool, addr: usize) -> Result<(PageNo, usize), InvalidFree> {
        let window = self.window();
        let page = window.page_of(addr).ok_or(InvalidFree::ForeignPointer)?;
        if !addr.is_multiple_of(PAGE) {
            return Err(InvalidFree::InteriorPointer);
        }
        if window.class_of(page) != LARGE || !window.is_pooled(page) {
            return Err(InvalidFree::ForeignPointer);
        }
        let claimed = idle::claim(window, page, pool.mark());
        claimed.map(|()| (page, length_of(window.run_pages(page)))).map_err(|why| match why {
            NotInFlight::Idle => InvalidFree::DoubleFree,
            NotInFlight::Foreign => InvalidFree::ForeignPointer,
        })
    }

    /// Ends a put: what it left is too much in a window, or if no run is in flight any more. The window is looked at after the
    /// runs were added (`mod.rs`).
    fn after_put(&self, pool: &PagePool, idle: Pages, in_flight: Pages) {
        let p = self.platform();
        let ns = pool.squeeze_ns(p);
        if self.pools.squeeze.is_open(&pool.closed, ns, || p.now()) {
            let pages = self.squeeze(pool, Pages::ZERO);
            if !pages.is_zero() {
                self.pools.note_squeezed(pages);
                self.pools.tend_at(p, p.now() + ns.min(RELEASE));
            }
            return;
        }
        let most = pool.max_idle_pages(p);
        if idle <= most {
            return;
        }
        if in_flight.is_zero() {
            self.give_above(pool, most);
        } else if !pool.is_tended && self.pools.due().is_none() {
            self.pools.tend_at(p, p.now() + OVERSHOOT);
        }
    }
}

// Idle runs go back to the zones, a batch at a time, with no lock held while they do.

/// Runs that are taken at a time, as many as pageblocks are isolated at a time.
pub(super) const BATCH: usize = 16;

impl<P: Platform> PoolsOn<'_, P> {
    /// Gives idle runs to the zones until at most `keep` idle pages are left; returns the pages.
    pub(super) fn give_above(&self, pool: &PagePool, keep: Pages) -> Pages {
        self.give_noting(pool, keep, |_, _| ())
    }

    /// [`PoolsOn::give_above`] for a pressure event.
    pub(super) fn squeeze(&self, pool: &PagePool, keep: Pages) -> Pages {
        let event = self.pools.squeeze.events.last();
        self.give_noting(pool, keep, |inner, pages| inner.note_squeezed(pages, event))
    }

    fn give_noting(&self, pool: &PagePool, keep: Pages, note: impl Fn(&mut Inner, Pages)) -> Pages {
        let (window, mut sum) = (self.window(), Pages::ZERO);
        loop {
            let (mut batch, mut count, mut pages) = ([(PageNo(0), 0); BATCH], 0, Pages::ZERO);
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
                self.pages.give(ZoneKind::Normal, Span::new(page, pages_of(length)), 0);
            }
            sum += pages;
        }
    }

    /// Work of a pool's owner. Squeezes the pool in a window, or for one that has passed since the last time. Else
    /// gives up all above `max_idle_pages`. Returns the pages squeezed, which the balancer is to release.
    pub(crate) fn tend(&self, pool: &PagePool) -> Pages {
        let p = self.platform();
        // Read before the idle runs are looked at (`mod.rs`).
        let event = self.pools.squeeze.events.last();
        let is_new = core::mem::replace(&mut pool.inner.lock(p).seen, event) != event;
        let ns = pool.squeeze_ns(p);
        if ns > Nanos::ZERO && (is_new || self.pools.squeeze.is_open(&pool.closed, ns, || p.now())) {
            let pages = self.squeeze(pool, Pages::ZERO);
            self.pools.note_squeezed(pages);
            return pages;
        }
        self.give_above(pool, pool.max_idle_pages(p));
        Pages::ZERO
    }

    /// [`PoolsOn::tend`] by a thread of the program's; the balancer then releases what it gave up.
    pub(crate) fn tend_and_release(&self, pool: &PagePool) -> Pages {
        let pages = self.tend(pool);
        if !pages.is_zero() {
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
        self.pools.squeeze.events.wait(self.platform(), seen, ns);
    }

    /// Gives all idle runs up, for the end of a pool.
    pub(crate) fn empty(&self, pool: &PagePool) {
        self.give_above(pool, Pages::ZERO);
    }
}
