//! All caches of a heap.

use core::sync::atomic::{AtomicU64, AtomicUsize};

use super::cache::table::CacheTable;
use super::cpu::buckets::PerCpu;
use super::depot::shells::Stash;
use super::geometry::BUCKETED;
use crate::base::backoff::Backoff;
use crate::base::time::Time;
use crate::base::units::Bytes;
use crate::pages::HeapPages;
use crate::platform::lock::Lock;
use crate::platform::{Platform, rank};
use crate::telemetry::stats;

/// All caches of a heap, and the pages that they stand on.
#[repr(C)]
pub struct Caches<P> {
    /// CPUs' buckets.
    pub(crate) cpu: PerCpu,
    pub(crate) pages: HeapPages<P>,
    /// By number: malloc's size classes, then user caches.
    pub(crate) table: CacheTable,
    /// Shells that no depot has.
    pub(crate) stash: Lock<Stash, { rank::SHELLS }>,
    /// Memory for shells is asked for.
    pub(crate) shells: Backoff,
    /// No memory for shells before this time, ns.
    pub(crate) shells_from: AtomicU64,
    pub(crate) idle: Lock<Idle, { rank::CACHE_WINDOWS }>,
    /// Bytes that became resident, since all CPUs' runs went back, while some were in buckets.
    pub(crate) fresh_beside_runs: AtomicUsize,
    /// Memory for the further nodes' domains of malloc's classes, of each as it is used; 0: not mapped yet.
    pub(super) malloc_domains: AtomicUsize,
}

impl<P: Platform> Caches<P> {
    /// malloc's caches, empty.
    pub(crate) const fn new(platform: P) -> Self {
        Self {
            cpu: PerCpu::new(),
            pages: HeapPages::new(platform),
            table: CacheTable::new(),
            stash: Lock::new(Stash::new()),
            shells: Backoff::new(),
            shells_from: AtomicU64::new(0),
            idle: Lock::new(Idle::new()),
            fresh_beside_runs: AtomicUsize::new(0),
            malloc_domains: AtomicUsize::new(0),
        }
    }
}

impl<P: Platform> Caches<P> {
    /// Object size of cache `number`, bytes.
    pub(crate) fn size_of(&self, number: usize) -> usize {
        self.table.get(number).shape.get().size as usize
    }

    /// How much a slab of cache `number` is.
    pub(crate) fn slab_bytes(&self, number: usize) -> Bytes {
        self.table.get(number).shape.get().slab_pages().bytes()
    }

    /// `n` allocations of cache `number` failed.
    pub(crate) fn note_failures(&self, number: usize, n: usize) {
        stats::add(&self.table.get(number).counts.failures, n as u64);
    }
}

// For how many windows each cache has been idle.

/// Activity of each cache with buckets as of the last window's end, for telling idle ones.
pub(crate) struct Idle {
    /// Frees and visits so far.
    pub(super) seen: [u64; BUCKETED],
    pub(super) windows: [u32; BUCKETED],
    pub(super) ended: Time,
}

impl Idle {
    pub(crate) const fn new() -> Self {
        Self { seen: [0; BUCKETED], windows: [0; BUCKETED], ended: Time::ZERO }
    }
}
