//! Object caches: per-CPU buckets over depots of full buckets over slabs over pages.

pub mod audit;
pub mod bucket_size;
pub mod cpu_cache;
pub mod depot;
pub mod drain;
pub mod figures;
pub mod geometry;
pub mod invalid_frees;
pub mod object_cache;
pub mod reclaimer;
pub mod shell_supply;
pub mod shells;
pub mod slab;
pub mod slab_pages;
pub mod trim;
pub mod usage;
pub mod user_alloc;
pub mod user_cache;

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::base::backoff::Backoff;
use crate::base::size_class::COUNT;
use crate::pages::Pages;
use crate::platform::lock::Lock;
use crate::platform::{Platform, rank};
use cpu_cache::PerCpu;
use drain::Idle;
use geometry::{CACHES, FIRST_MADE, Geometry, MALLOC};
use object_cache::Cache;
use shells::Stash;

/// All caches of a heap, and the pages that they stand on.
#[repr(C)]
pub struct Caches<P> {
    /// CPUs' buckets.
    pub(crate) cpu: PerCpu,
    pub(crate) pages: Pages<P>,
    /// By number: malloc's size classes, then those that the program made.
    pub(crate) table: [Cache; CACHES],
    /// Numbers that ever had a cache, plus one.
    pub(crate) known: AtomicU32,
    /// Held while a number gets a cache, and a cache its nodes' domains.
    pub(crate) making: Lock<(), { rank::CACHE_TABLE }>,
    /// Shells that no depot has.
    pub(crate) stash: Lock<Stash, { rank::SHELLS }>,
    /// Memory for shells is asked for.
    pub(crate) shells: Backoff,
    /// No memory for shells before this time, ns.
    pub(crate) shells_from: AtomicU64,
    pub(crate) idle: Lock<Idle, { rank::CACHE_WINDOWS }>,
}

/// malloc's caches, and room for others.
const fn table() -> [Cache; CACHES] {
    let mut out = [const { Cache::new(Geometry::NONE, user_cache::FREE) }; CACHES];
    let mut class = 1;
    while class <= COUNT {
        out[class] = Cache::new(MALLOC[class], user_cache::LIVE);
        class += 1;
    }
    out
}

impl<P: Platform> Caches<P> {
    /// malloc's caches, empty.
    pub(crate) const fn new(platform: P) -> Self {
        Self {
            cpu: PerCpu::new(),
            pages: Pages::new(platform),
            table: table(),
            known: AtomicU32::new(FIRST_MADE as u32),
            making: Lock::new(()),
            stash: Lock::new(Stash::new()),
            shells: Backoff::new(),
            shells_from: AtomicU64::new(0),
            idle: Lock::new(Idle::new()),
        }
    }
}
