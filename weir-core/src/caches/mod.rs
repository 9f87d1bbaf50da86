//! Object caches: per-CPU buckets over depots of full buckets over slabs over pages.

pub mod audit;
pub mod bucket_size;
pub mod cache;
pub mod cache_table;
pub mod cpu_cache;
pub mod depot;
pub mod domain;
pub mod domain_routing;
pub mod drain;
pub mod figures;
pub mod finalizers;
pub mod flush;
pub mod geometry;
pub mod invalid_frees;
pub mod reclaimer;
pub mod refill;
pub mod shell_supply;
pub mod shells;
pub mod slab;
pub mod slab_lists;
pub mod slab_pages;
pub mod spec;
pub mod trim;
pub mod unbucketed;
pub mod usage;
pub mod user_alloc;
pub mod user_cache;
pub mod user_part;

use core::sync::atomic::AtomicU64;

use crate::base::backoff::Backoff;
use crate::pages::Pages;
use crate::platform::lock::Lock;
use crate::platform::{Platform, rank};
use cache_table::CacheTable;
use cpu_cache::PerCpu;
use drain::Idle;
use shells::Stash;

/// All caches of a heap, and the pages that they stand on.
#[repr(C)]
pub struct Caches<P> {
    /// CPUs' buckets.
    pub(crate) cpu: PerCpu,
    pub(crate) pages: Pages<P>,
    /// By number: malloc's size classes, then user caches.
    pub(crate) table: CacheTable,
    /// Shells that no depot has.
    pub(crate) stash: Lock<Stash, { rank::SHELLS }>,
    /// Memory for shells is asked for.
    pub(crate) shells: Backoff,
    /// No memory for shells before this time, ns.
    pub(crate) shells_from: AtomicU64,
    pub(crate) idle: Lock<Idle, { rank::CACHE_WINDOWS }>,
}

impl<P: Platform> Caches<P> {
    /// malloc's caches, empty.
    pub(crate) const fn new(platform: P) -> Self {
        Self {
            cpu: PerCpu::new(),
            pages: Pages::new(platform),
            table: CacheTable::new(),
            stash: Lock::new(Stash::new()),
            shells: Backoff::new(),
            shells_from: AtomicU64::new(0),
            idle: Lock::new(Idle::new()),
        }
    }
}
