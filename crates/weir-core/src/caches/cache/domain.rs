//! Parts of a cache on each NUMA node: a depot, and slabs that lie on that node.

use core::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed},
};

use crate::base::run::Run;
use crate::base::units::PAGE;
use crate::caches::depot::Depot;
use crate::caches::slab::lists::{SlabLists, Slabs};
use crate::platform::lock::Lock;
use crate::platform::rank;

/// A cache's depot and slabs on one NUMA node.
#[repr(align(64))]
pub struct Domain {
    /// Full buckets.
    pub depot: Lock<Depot, { rank::DEPOT }>,
    /// Slabs.
    pub slabs: Slabs,
}

impl Domain {
    pub(super) const fn new() -> Self {
        Self { depot: Lock::new(Depot::new()), slabs: Lock::new(SlabLists::new()) }
    }
}

/// Bytes of so many domains, whole pages.
pub(super) fn domain_bytes(count: usize) -> usize {
    (count * size_of::<Domain>()).next_multiple_of(PAGE)
}

/// A cache's domains: the first node's, and those of nodes 1 and up.
pub(crate) struct Domains {
    /// Mapped at their first use, or a part of what malloc's classes share; [`unavailable`] if there was no memory.
    pub(super) more: AtomicPtr<Domain>,
    /// How many those are: written before `more`.
    pub(super) more_count: AtomicU32,
    pub(super) home: Domain,
}

/// In place of domains that there was no memory for: the first node's is used then, for good.
pub(super) const fn unavailable() -> *mut Domain {
    core::ptr::without_provenance_mut(1)
}

impl Domains {
    pub(crate) const fn new() -> Self {
        Self { more: AtomicPtr::new(core::ptr::null_mut()), more_count: AtomicU32::new(0), home: Domain::new() }
    }

    /// The mapping of those of nodes 1 and up, of a cache that has one of its own.
    pub(super) fn more_run(&self) -> Option<Run> {
        let more = self.more.load(Acquire);
        let is_mapped = !more.is_null() && more != unavailable();
        let count = self.more_count.load(Relaxed) as usize;
        is_mapped.then(|| Run { addr: more as usize, len: domain_bytes(count) })
    }

    /// All domains, the first node's first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Domain> {
        let more = self.more.load(Acquire);
        let count = if more.is_null() || more == unavailable() { 0 } else { self.more_count.load(Relaxed) as usize };
        // SAFETY: `more` points to as many initialised domains as `more_count` said before `more` was stored, and is
        // never unmapped once it is stored.
        core::iter::once(&self.home).chain((0..count).map(move |i| unsafe { &*more.add(i) }))
    }
}
