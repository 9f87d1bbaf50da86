//! Page pools of a program's: made, used and ended; and what the balancer does for them.

use core::ptr::{NonNull, null_mut};

use super::Heap;
use super::view::view;
use crate::base::cause::Cause;
use crate::base::time::Time;
use crate::base::units::{Bytes, MAX_RUN, Pages};
use crate::platform::Platform;
use crate::pools::page_pool::{PagePool, PoolStats};
use crate::pools::page_pools::PoolsOn;
use crate::reclaim::{Goal, Kind};

/// A pool cannot end while pages of it are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Pages in flight.
    pub pages: usize,
}

view! {
    /// Page pools of a program.
    pub struct HeapPools;
    /// A program's page pools.
    fn page_pools;
}

impl<P: Platform> HeapPools<'_, P> {
    pub(super) fn pools(&self) -> PoolsOn<'_, P> {
        self.heap.page_pools.on(self.heap.pages())
    }

    /// Makes a pool known.
    ///
    /// # Safety
    /// It lives, where it is, until [`HeapPools::remove`] has succeeded, is added once, and is used through shared
    /// references alone meanwhile. No other heap's calls get it.
    pub unsafe fn add(&self, pool: NonNull<PagePool>) {
        // SAFETY: the caller's promise is the one that is demanded.
        unsafe { self.heap.page_pools.add(self.heap.platform(), pool) }
    }

    /// Ends a pool, unless pages of it are in flight; then nothing has changed. Waits for a thread that reclaims its
    /// idle pages. No other thread uses the pool meanwhile.
    pub fn remove(&self, pool: &PagePool) -> Result<(), InFlight> {
        let pages = self.stats(pool).in_flight_pages;
        if pages > 0 {
            return Err(InFlight { pages });
        }
        self.heap.page_pools.remove(self.heap.platform(), pool);
        self.pools().empty(pool);
        Ok(())
    }

    /// A run of at least `pages` pages of a pool; null when memory is refused, or for 0 and more than [`MAX_RUN`]
    /// pages. It holds anything. O(1) but for system calls.
    pub fn get(&self, pool: &PagePool, pages: usize) -> *mut u8 {
        if !(1..=MAX_RUN.0).contains(&pages) {
            return null_mut();
        }
        let pages = Pages(pages);
        if let Some(run) = self.pools().get_idle(pool, pages) {
            return run as *mut u8;
        }
        let take = || self.pools().get_fresh(pool, pages);
        let bytes = Pages(PagePool::run_pages(pages.0)).bytes();
        let run = take().or_else(|_| self.heap.direct().reclaim_for(bytes, take));
        self.heap.direct().slow_path_ends();
        run.unwrap_or(0) as *mut u8
    }

    /// Fills `out` with runs of `pages` pages, as many as can be had; returns how many.
    pub fn get_batch(&self, pool: &PagePool, pages: usize, out: &mut [*mut u8]) -> usize {
        for (count, place) in out.iter_mut().enumerate() {
            *place = self.get(pool, pages);
            if place.is_null() {
                return count;
            }
        }
        out.len()
    }

    /// Puts runs back, each whole and once; null is allowed. Those that are not in flight from this pool are named as
    /// invalid frees, and left alone.
    ///
    /// # Safety
    /// The runs are not used any more.
    pub unsafe fn put(&self, pool: &PagePool, runs: &[*mut u8]) {
        self.pools().put(pool, runs);
    }

    /// For the thread of the program's that is the owner of a pool: gives up what is idle in a squeeze window, or
    /// above
    /// `max_idle_pages`. Returns the pages given up for pressure.
    pub fn tend(&self, pool: &PagePool) -> usize {
        self.pools().tend_and_release(pool).0
    }

    /// Sleeps until there is a pressure event that the pool was not tended for, for `ns` at most, or for no reason.
    pub fn wait_for_squeeze(&self, pool: &PagePool, ns: Option<u64>) {
        self.pools().wait(pool, ns);
    }

    /// A pool's figures.
    pub fn stats(&self, pool: &PagePool) -> PoolStats {
        pool.stats(self.heap.platform())
    }

    /// Whether a pressure event finds idle pages in pools that the balancer is the owner of.
    pub fn has_idle_pages(&self) -> bool {
        self.pools().has_idle_pages()
    }

    /// For the balancer's thread: when [`HeapPools::tend_due`] is to be called next, ns.
    pub fn due(&self) -> Option<Time> {
        self.heap.page_pools.due()
    }

    /// Tends the pools that the balancer is the owner of, if that is due, and releases what pools gave up in squeeze
    /// windows.
    pub fn tend_due(&self) {
        let now = self.heap.platform().now();
        if !self.heap.page_pools.take_due(now) {
            return;
        }
        self.pools().tend_all();
        let bytes = self.heap.page_pools.take_squeezed().bytes();
        if !bytes.is_zero() {
            self.release_free(Cause::Pressure, bytes);
        }
    }

    /// Releases `bytes` of what is free in zones.
    fn release_free(&self, cause: Cause, bytes: Bytes) {
        let mut left = bytes;
        for node in 0..self.heap.pages().nodes.count() {
            let goal = Goal { bytes: left, node: Some(node), ..self.heap.reclaim().goal(Kind::Node, cause) };
            left -= self.heap.reclaim().run(&goal).released.min(left);
        }
    }
}
