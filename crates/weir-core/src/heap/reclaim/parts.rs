//! The parts of a heap, as reclaim, `fork`, the audit and the figures know them. Whoever adds a mechanism adds it here.

use crate::blocks::Mapped;
use crate::caches::Caches;
use crate::evict::shrinker_scan::Shrinkers;
use crate::heap::Heap;
use crate::huge_pages::Watch;
use crate::merge::Merger;
use crate::pages::HeapPages;
use crate::platform::Platform;
use crate::pools::page_pools::PoolsOn;
use crate::reclaim::{Audited, Freeze, Measured, Reclaimable};

/// All parts, as views.
pub(crate) struct Parts<'a, P: Platform> {
    pages: &'a HeapPages<P>,
    caches: &'a Caches<P>,
    blocks: Mapped<'a, P>,
    huge_pages: Watch<'a, P>,
    merger: Merger<'a, P>,
    pools: PoolsOn<'a, P>,
    shrinkers: Shrinkers<'a, P>,
}

impl<P: Platform> Heap<P> {
    pub(crate) fn parts(&self) -> Parts<'_, P> {
        Parts {
            pages: self.pages(),
            caches: &self.caches,
            blocks: self.mapped(),
            huge_pages: self.watch(),
            merger: self.merger(),
            pools: self.page_pools.on(self.pages()),
            shrinkers: self.callbacks.on(self.platform(), self.reclaim().budget_room()),
        }
    }
}

impl<P: Platform> Parts<'_, P> {
    /// Parts that hold memory which may be idle.
    pub(crate) fn reclaimable(&self) -> [&dyn Reclaimable; 7] {
        [self.pages, self.caches, &self.blocks, &self.huge_pages, &self.merger, &self.pools, &self.shrinkers]
    }

    /// Parts that have locks.
    pub(crate) fn frozen(&self) -> [&dyn Freeze<P>; 5] {
        [self.pages, self.caches, &self.blocks, &self.pools, &self.shrinkers]
    }

    /// Parts that have lists and counts.
    pub(crate) fn audited(&self) -> [&dyn Audited; 4] {
        [self.pages, self.caches, &self.blocks, &self.pools]
    }

    /// Parts that have figures.
    pub(crate) fn measured(&self) -> [&dyn Measured; 5] {
        [self.pages, self.caches, &self.blocks, &self.pools, &self.merger]
    }
}
