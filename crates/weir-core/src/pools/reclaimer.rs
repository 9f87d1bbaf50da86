//! Answers to what reclaim asks of page pools. The table of what is kept when is in `mod.rs`.

use super::idle::{is_idle, pages_of};
use super::page_pool::PagePool;
use super::page_pools::PoolsOn;
use crate::base::fault::{Fault, check};
use crate::base::time::Nanos;
use crate::base::units::{Bytes, Pages};
use crate::pages::window::LARGE;
use crate::platform::Platform;
use crate::platform::lock::RankTurn;
use crate::reclaim::{
    Audit, Audited, Figures, Freeze, Goal, Measured, Need, Pools, Reclaimable, Reclaimed, Step, Steps, Usage,
};
use core::ptr::null;
use core::sync::atomic::Ordering::Relaxed;

impl<P: Platform> PoolsOn<'_, P> {
    /// Idle pages that a goal leaves to a pool; `None`: all.
    fn keep(&self, pool: &PagePool, goal: &Goal) -> Option<Pages> {
        match goal.row().pools {
            Pools::IdleOfAll => Some(Pages::ZERO),
            Pools::Idle | Pools::Squeeze => {
                (!pool.is_tended && pool.squeeze_ns(self.platform()) > Nanos::ZERO).then_some(Pages::ZERO)
            }
            Pools::Surplus => (!pool.is_tended).then(|| pool.max_idle_pages(self.platform())),
        }
    }

    /// Scans one pool for at most `bytes`; returns how much went.
    fn scan_pool(&self, pool: &PagePool, goal: &Goal, bytes: Bytes) -> Bytes {
        let Some(keep) = self.keep(pool, goal) else { return Bytes::ZERO };
        let p = self.platform();
        // Before the idle runs are looked at.
        let event = self.pools.squeeze.events.last();
        let mut inner = pool.inner.lock(p);
        let keep = keep.max(inner.idle.pages().saturating_sub(bytes.pages_up()));
        let is_squeeze = goal.row().pools == Pools::Squeeze;
        if is_squeeze && keep.is_zero() {
            inner.seen = event;
        }
        drop(inner);
        let pages = if is_squeeze { self.squeeze(pool, keep) } else { self.give_above(pool, keep) };
        pages.bytes()
    }

    /// Whether there are idle pages in pools that the balancer is the owner of.
    pub(crate) fn has_idle_pages(&self) -> bool {
        let list = self.pools.list.lock(self.platform());
        list.iter().any(|pool| !pool.is_tended && pool.inner.lock(self.platform()).idle.pages() > Pages::ZERO)
    }

    fn idle_pages(&self) -> Pages {
        let list = self.pools.list.lock(self.platform());
        list.iter().map(|pool| pool.inner.lock(self.platform()).idle.pages()).sum()
    }
}

impl<P: Platform> Reclaimable for PoolsOn<'_, P> {
    fn steps(&self) -> Steps {
        Steps::of(&[Step::Pools])
    }

    fn count(&self, goal: &Goal) -> Bytes {
        let list = self.pools.list.lock(self.platform());
        let of = |pool: &PagePool| {
            let keep = self.keep(pool, goal)?;
            Some(pool.inner.lock(self.platform()).idle.pages().saturating_sub(keep).bytes())
        };
        list.iter().filter_map(of).sum()
    }

    /// Counts what it finds as *moved*: it lies in free areas, which later steps release.
    fn scan(&self, _step: Step, goal: &Goal) -> Reclaimed {
        // A zone that is low is a pressure event as any other, however often a goal comes by. Those that are heard come by
        // `Reclaim::note_pressure`.
        if goal.row().need == Need::LowZone
            && self.pools.are_there()
            && self.pools.signaled.swap(goal.turn, Relaxed) != goal.turn
        {
            self.pools.signal(self.platform(), self.platform().now());
        }
        let mut bytes = Bytes::ZERO;
        self.pools.each(self.platform(), goal.turn, |pool| {
            bytes += self.scan_pool(pool, goal, goal.bytes.saturating_sub(bytes));
        });
        Reclaimed::moved(bytes)
    }
}

// SAFETY: no pool comes or goes while the list's lock is held, of a lower rank than theirs.
unsafe impl<P: Platform> Freeze<P> for PoolsOn<'_, P> {
    fn freeze(&self, turn: &RankTurn<'_, P>) {
        self.pools.freeze(turn);
    }
}

impl<P: Platform> Audited for PoolsOn<'_, P> {
    fn audit(&self, _audit: &mut Audit) -> Result<(), Fault> {
        let (window, list) = (self.window(), self.pools.list.lock(self.platform()));
        let mut before = null();
        for pool in list.iter() {
            check(core::ptr::eq(pool.prev.load(Relaxed), before), "a link of the list of pools", 0)?;
            before = pool;
            let (mark, inner, mut pages) = (pool.mark(), pool.inner.lock(self.platform()), Pages::ZERO);
            for (page, length) in inner.idle.iter(window) {
                let is_run = window.class_of(page) == LARGE && window.is_pooled(page);
                check(is_run && window.run_pages(page) == pages_of(length), "an idle run of a pool", page.index())?;
                check(is_idle(window, page, mark), "the owner of an idle run", page.index())?;
                pages += pages_of(length);
            }
            check(pages == inner.idle.pages(), "idle pages of a pool", pages.0)?;
        }
        Ok(())
    }
}

impl<P: Platform> Measured for PoolsOn<'_, P> {
    /// The zones have counted all pages of pools as handed out.
    fn publish(&self, figures: &mut Figures, waits: bool) {
        let p = self.platform();
        let list = if waits { Some(self.pools.list.lock(p)) } else { self.pools.list.try_lock(p) };
        let Some(list) = list else { return figures.is_partial = true };
        for pool in list.iter() {
            let inner = if waits { Some(pool.inner.lock(p)) } else { pool.inner.try_lock(p) };
            let Some(inner) = inner else { return figures.is_partial = true };
            let bytes = inner.idle.pages().bytes();
            figures.idle += bytes;
            figures.pages = figures.pages.saturating_sub(bytes);
        }
    }

    /// The walk over the pages has counted all pages of pools as live.
    fn add_usage(&self, usage: &mut Usage) {
        let bytes = self.idle_pages().bytes().0.min(usage.live);
        usage.live -= bytes;
        usage.idle += bytes;
    }
}
