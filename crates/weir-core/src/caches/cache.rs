//! One object cache: what lies below the per-CPU buckets. malloc's size classes are such caches, and so are user caches
//! ([`super::user_cache`]).
//!
//! How objects move between the levels, [`super::cpu::refill`] and [`super::cpu::flush`] say; how many lie on each,
//! [`super::cpu::bucket_size`] and [`crate::policy::working_set`]; what reclaim takes, [`super::depot::trim`] and
//! [`super::cpu::drain`].

pub(crate) mod domain;
pub(crate) mod domain_access;
pub(crate) mod life;
pub(crate) mod table;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::caches::cache::domain::{Domain, Domains};
use crate::caches::cache::life::Life;
use crate::caches::cpu::bucket_size::Tuning;
use crate::caches::geometry::{Geometry, Shape};
use crate::caches::user_cache::move_callback::MoveCallback;
use crate::caches::user_cache::spec::UserPart;

/// Counters of rare events of a cache; frequent ones are counted by its depots.
pub(crate) struct Counts {
    /// Allocations that failed.
    pub failures: AtomicU64,
    /// Frees that were not pushes of one object.
    pub slow_frees: AtomicU64,
    /// Trims that took something, and the bytes that they took.
    pub trims: AtomicU64,
    pub trimmed: AtomicU64,
    /// Drains that took something, and the bytes that they took.
    pub drains: AtomicU64,
    pub drained: AtomicU64,
    /// Batches that left CPUs' buckets as programs freed, for telling which of them are checked.
    pub batches: AtomicU32,
}

impl Counts {
    const fn new() -> Self {
        Self {
            failures: AtomicU64::new(0),
            slow_frees: AtomicU64::new(0),
            trims: AtomicU64::new(0),
            trimmed: AtomicU64::new(0),
            drains: AtomicU64::new(0),
            drained: AtomicU64::new(0),
            batches: AtomicU32::new(0),
        }
    }

    /// Sets all to zero.
    pub(crate) fn reset(&self) {
        let all = [&self.failures, &self.slow_frees, &self.trims, &self.trimmed, &self.drains, &self.drained];
        all.into_iter().for_each(|counter| counter.store(0, Relaxed));
        self.batches.store(0, Relaxed);
    }
}

/// One cache. What all CPUs read and few write comes first, in cache lines of its own.
#[repr(C, align(64))]
pub struct Cache {
    pub(crate) shape: Shape,
    pub(in crate::caches) life: Life,
    pub(crate) tuning: Tuning,
    pub(crate) user: UserPart,
    pub(crate) counts: Counts,
    pub(crate) domains: Domains,
    pub(crate) moves: MoveCallback,
    /// The next free number, of one that is free and without buckets.
    pub(crate) next_free: AtomicU32,
}

impl Cache {
    /// An empty cache whose life has come to `state`.
    pub(crate) const fn new(geometry: Geometry, state: u8) -> Self {
        Self {
            shape: Shape::new(geometry),
            life: Life::new(state),
            tuning: Tuning::new(&geometry),
            counts: Counts::new(),
            user: UserPart::new(),
            domains: Domains::new(),
            moves: MoveCallback::new(),
            next_free: AtomicU32::new(0),
        }
    }

    /// Domains of the cache, the first node's first.
    pub(crate) fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.iter()
    }

    /// Whether it was made and is not being destroyed.
    pub(crate) fn is_live(&self) -> bool {
        self.life.is_live()
    }
}
