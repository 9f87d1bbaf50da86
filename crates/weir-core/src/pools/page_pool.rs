//! A page pool: its idle runs behind a lock, its settings and its figures.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

use super::idle::{IdleRuns, length_of, pages_of};
use super::squeeze::Closed;
use super::visits::Visits;
use crate::base::time::Nanos;
use crate::base::units::Pages;
use crate::platform::lock::Lock;
use crate::platform::{Diagnostics, Wait, rank};
use crate::telemetry::name::Name;

/// In place of a pool's own setting: the setting of all counts.
const COMMON: u64 = u64::MAX;

/// How a pool is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolSpec<'a> {
    /// For figures; cut at 32 bytes.
    pub name: &'a [u8],
    /// Idle pages that are kept; `None`: what the setting `max_idle_pages` says.
    pub max_idle_pages: Option<usize>,
    /// How long the pool is squeezed after a pressure event, ms; 0: never; `None`: what the setting `squeeze_ms` says.
    pub squeeze_ms: Option<u64>,
    /// A thread of the program's is its owner, and calls [`crate::heap::page_pools::HeapPools::tend`]. The balancer then takes idle
    /// pages only where an allocation would fail otherwise, or the program asks for it.
    pub is_tended: bool,
}

/// Figures of a pool. All but the first two are totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Pages that are idle now.
    pub idle_pages: usize,
    /// Pages that the program has now.
    pub in_flight_pages: usize,
    /// Runs asked for.
    pub gets: u64,
    /// Runs that took new pages, as none of their length was idle.
    pub misses: u64,
    /// Pressure events for which idle pages were given up.
    pub squeezes: u64,
    /// Pages given up for these.
    pub squeezed_pages: u64,
    /// Misses that took pages which a squeeze had given up before.
    pub misses_after_squeeze: u64,
}

/// See the module. It stays where it is from [`crate::heap::page_pools::HeapPools::add`] to [`crate::heap::page_pools::HeapPools::remove`].
pub struct PagePool {
    name: Name,
    pub(super) is_tended: bool,
    /// Rises with each pool of a heap; 0 before the pool is added.
    pub(super) number: AtomicU64,
    /// Neighbours in the list of pools.
    pub(super) next: AtomicPtr<PagePool>,
    pub(super) prev: AtomicPtr<PagePool>,
    pub(super) visits: Visits,
    max_idle_pages: AtomicU64,
    squeeze_ms: AtomicU64,
    pub(super) closed: Closed,
    pub(super) inner: Lock<Inner, { rank::PAGE_POOL }>,
}

/// State of a pool, under its lock.
pub(super) struct Inner {
    pub idle: IdleRuns,
    pub in_flight: Pages,
    /// The pressure event that the pool was tended for last.
    pub seen: u32,
    /// The pressure event for which idle pages were given up last.
    squeezed_for: u32,
    /// Pages given up for pressure and not taken anew since.
    owed: Pages,
    /// The totals among the figures.
    totals: PoolStats,
}

impl Inner {
    /// A run of `pages` pages is asked for, of which none is idle if it `is_miss`.
    pub(crate) fn note_get(&mut self, pages: Pages, is_miss: bool) {
        self.totals.gets += 1;
        if is_miss {
            self.totals.misses += 1;
            self.totals.misses_after_squeeze += u64::from(!self.owed.is_zero());
            self.owed = self.owed.saturating_sub(pages);
        }
    }

    /// `pages` idle pages were given up for the pressure event `event`.
    pub(crate) fn note_squeezed(&mut self, pages: Pages, event: u32) {
        if !pages.is_zero() {
            self.totals.squeezes += u64::from(self.totals.squeezes == 0 || self.squeezed_for != event);
            self.squeezed_for = event;
            self.totals.squeezed_pages += pages.0 as u64;
            self.owed += pages;
        }
    }

    fn stats(&self) -> PoolStats {
        PoolStats { idle_pages: self.idle.pages().0, in_flight_pages: self.in_flight.0, ..self.totals }
    }
}

impl PagePool {
    /// An empty pool.
    pub fn new(spec: &PoolSpec<'_>) -> Self {
        let inner = Inner {
            idle: IdleRuns::new(),
            in_flight: Pages::ZERO,
            seen: 0,
            squeezed_for: 0,
            owed: Pages::ZERO,
            totals: PoolStats::default(),
        };
        Self {
            name: Name::new(spec.name),
            is_tended: spec.is_tended,
            number: AtomicU64::new(0),
            next: AtomicPtr::new(core::ptr::null_mut()),
            prev: AtomicPtr::new(core::ptr::null_mut()),
            visits: Visits::new(),
            max_idle_pages: AtomicU64::new(spec.max_idle_pages.map_or(COMMON, |pages| pages as u64)),
            squeeze_ms: AtomicU64::new(spec.squeeze_ms.unwrap_or(COMMON)),
            closed: Closed::new(),
            inner: Lock::new(inner),
        }
    }

    /// Whether it is on the list of its heap. One that was never added has no number, and the link of one that has left leads to
    /// itself. Under the list's lock.
    pub(super) fn is_listed(&self) -> bool {
        self.number.load(Relaxed) != 0 && !core::ptr::eq(self.next.load(Relaxed), self)
    }

    /// The pool's mark in descriptors of its runs: half of a word, and never 0. Only after 2^31 pools one comes again.
    pub(super) fn mark(&self) -> u32 {
        (self.number.load(Relaxed) % u64::from(u32::MAX >> 1)) as u32 + 1
    }

    /// Pages of a run that is handed out for `pages` pages (1 to [`MAX_RUN`](crate::base::units::MAX_RUN)).
    pub fn run_pages(pages: usize) -> usize {
        pages_of(length_of(Pages(pages))).0
    }

    /// Name of the pool.
    pub fn name(&self) -> &[u8] {
        self.name.bytes()
    }

    /// Sets how many idle pages are kept; `None`: what the setting of all pools says. The next put, or the next time
    /// that the pool is tended, uses it.
    pub fn set_max_idle_pages(&self, pages: Option<usize>) {
        self.max_idle_pages.store(pages.map_or(COMMON, |pages| pages as u64), Relaxed);
    }

    /// Sets for how long the pool is squeezed after a pressure event, ms; `None`: what the setting of all pools says.
    /// It counts at once, also for an event that was before. A change of the setting of all pools counts from the next
    /// event on at the latest.
    pub fn set_squeeze_ms(&self, ms: Option<u64>) {
        self.squeeze_ms.store(ms.unwrap_or(COMMON), Relaxed);
        self.closed.forget();
    }

    /// Idle pages that are kept outside of a squeeze window.
    pub(crate) fn max_idle_pages<P: Diagnostics>(&self, platform: &P) -> Pages {
        let own = self.max_idle_pages.load(Relaxed);
        Pages((if own == COMMON { platform.tunables().max_idle_pages.get() } else { own }) as usize)
    }

    /// How long the pool is squeezed after a pressure event, ns; 0: never.
    pub(super) fn squeeze_ns<P: Diagnostics>(&self, platform: &P) -> Nanos {
        let own = self.squeeze_ms.load(Relaxed);
        Nanos::of_ms(if own == COMMON { platform.tunables().squeeze_ms.get() } else { own })
    }

    /// Figures of the pool.
    pub(crate) fn stats<P: Wait>(&self, platform: &P) -> PoolStats {
        self.inner.lock(platform).stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_half_of_a_word_and_never_0_however_many_pools_were_made() {
        let pool = PagePool::new(&PoolSpec::default());
        for number in [1, 2, (1 << 31) - 2, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, u64::MAX] {
            pool.number.store(number, Relaxed);
            assert!((1..1 << 31).contains(&pool.mark()), "{number}: {}", pool.mark());
        }
    }
}
