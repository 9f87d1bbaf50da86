//! What reclaim asks of page pools. (The table of what is kept when is in `mod.rs`.)

use super::idle::{is_idle, pages_of};
use super::page_pool::PagePool;
use super::page_pools::PoolsOn;
use crate::base::fault::{Fault, check};
use crate::base::level::Level;
use crate::base::units::PAGE;
use crate::pages::window::LARGE;
use crate::platform::Platform;
use crate::reclaim::{Audit, Figures, Goal, Kind, Reclaimable, Reclaimed, Step, Usage};
use core::sync::atomic::Ordering::Relaxed;

/// What a goal wants of a pool.
enum Wanted {
    /// Its idle pages, whoever the owner is, as far as the goal goes: an allocation would fail, or the program asks for
    /// it.
    Idle,
    /// The same, unless a thread of the program's is the owner: memory is short.
    Squeeze,
    /// What it has above `max_idle_pages`, unless a thread of the program's is the owner.
    Surplus,
}

fn wanted(goal: &Goal) -> Wanted {
    match goal.kind {
        Kind::Asked | Kind::Shortage | Kind::HardLimit => Wanted::Idle,
        Kind::Calm(_) => Wanted::Surplus,
        _ => Wanted::Squeeze,
    }
}

impl<P: Platform> PoolsOn<'_, P> {
    /// Idle pages that a goal leaves to a pool; `None`: all.
    fn keep(&self, pool: &PagePool, goal: &Goal) -> Option<usize> {
        match wanted(goal) {
            Wanted::Idle => Some(0),
            Wanted::Squeeze => (!pool.is_tended && pool.squeeze_ns(self.platform()) > 0).then_some(0),
            Wanted::Surplus => (!pool.is_tended).then(|| pool.max_idle_pages(self.platform())),
        }
    }

    /// Scans one pool for at most `bytes`; returns bytes.
    fn scan_pool(&self, pool: &PagePool, goal: &Goal, bytes: usize) -> usize {
        let Some(keep) = self.keep(pool, goal) else { return 0 };
        let p = self.platform();
        // Before the idle runs are looked at.
        let event = self.pools.squeeze.generation();
        let mut inner = pool.inner.lock(p);
        let keep = keep.max(inner.idle.pages().saturating_sub(bytes.div_ceil(PAGE)));
        // At rest there is no event that the pages are given up for.
        let is_squeeze = matches!(wanted(goal), Wanted::Squeeze) && goal.kind != Kind::Rest;
        if is_squeeze && keep == 0 {
            inner.seen = event;
        }
        drop(inner);
        let pages = if is_squeeze { self.squeeze(pool, keep) } else { self.trim(pool, keep) };
        pages * PAGE
    }

    /// Whether there are idle pages in pools that the balancer is the owner of.
    pub(crate) fn has_idle_pages(&self) -> bool {
        let list = self.pools.list.lock(self.platform());
        list.iter().any(|pool| !pool.is_tended && pool.inner.lock(self.platform()).idle.pages() > 0)
    }

    fn idle_pages(&self) -> usize {
        let list = self.pools.list.lock(self.platform());
        list.iter().map(|pool| pool.inner.lock(self.platform()).idle.pages()).sum()
    }
}

impl<P: Platform> Reclaimable for PoolsOn<'_, P> {
    fn steps(&self) -> &'static [Step] {
        &[Step::Pools]
    }

    fn count(&self, goal: &Goal) -> usize {
        let list = self.pools.list.lock(self.platform());
        let of = |pool: &PagePool| {
            let keep = self.keep(pool, goal)?;
            Some(pool.inner.lock(self.platform()).idle.pages().saturating_sub(keep) * PAGE)
        };
        list.iter().filter_map(of).sum()
    }

    /// What it finds is *moved*: it lies in free areas, which later steps release.
    fn scan(&self, _step: Step, goal: &Goal) -> Reclaimed {
        // A zone that is low is a pressure event as any other. Those that are heard come by `Heap::note_pressure`.
        if matches!(goal.kind, Kind::Balance { .. } | Kind::Direct) && self.pools.are_there() {
            self.pools.signal(self.platform(), self.platform().now());
        }
        let mut bytes = 0;
        self.pools.each(self.platform(), goal.turn, |pool| {
            bytes += self.scan_pool(pool, goal, goal.bytes.saturating_sub(bytes));
        });
        Reclaimed::moved(bytes)
    }

    /// Relief is nothing to a pool: its window ends by itself.
    fn pressure_changed(&self, _level: Level) {}

    fn freeze(&self, rank: u32) {
        self.pools.freeze(self.platform(), rank);
    }

    unsafe fn thaw(&self, rank: u32) {
        // SAFETY: `freeze` of this rank came before, on this thread or the one that it is the copy of.
        unsafe { self.pools.thaw(self.platform(), rank) }
    }

    fn audit(&self, _audit: &mut Audit) -> Result<(), Fault> {
        let (window, list) = (self.window(), self.pools.list.lock(self.platform()));
        for pool in list.iter() {
            let (number, inner, mut pages) = (pool.number.load(Relaxed), pool.inner.lock(self.platform()), 0);
            for (page, length) in inner.idle.iter(window) {
                let is_run = window.class_of(page) == LARGE && window.is_pooled(page);
                check(is_run && window.run_pages(page) == pages_of(length), "an idle run of a pool", page as usize)?;
                check(is_idle(window, page, number), "the owner of an idle run", page as usize)?;
                pages += pages_of(length);
            }
            check(pages == inner.idle.pages(), "idle pages of a pool", pages)?;
        }
        Ok(())
    }

    /// The zones have counted all pages of pools as handed out.
    fn publish(&self, figures: &mut Figures, waits: bool) {
        let p = self.platform();
        let list = if waits { Some(self.pools.list.lock(p)) } else { self.pools.list.try_lock(p) };
        let Some(list) = list else { return figures.is_partial = true };
        for pool in list.iter() {
            let inner = if waits { Some(pool.inner.lock(p)) } else { pool.inner.try_lock(p) };
            let Some(inner) = inner else { return figures.is_partial = true };
            let bytes = inner.idle.pages() * PAGE;
            figures.idle += bytes;
            figures.pages = figures.pages.saturating_sub(bytes);
        }
    }

    /// The walk over the pages has counted all pages of pools as live.
    fn add_usage(&self, usage: &mut Usage) {
        let bytes = (self.idle_pages() * PAGE).min(usage.live);
        usage.live -= bytes;
        usage.idle += bytes;
    }
}
