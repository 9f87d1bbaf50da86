//! What a user cache has beyond what malloc's caches have: traits, limit, reserve, name, and the functions for its objects.

use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::caches::spec::{NAME_BYTES, Spec};

/// Bits of [`UserPart::traits`].
pub(crate) const LIMITED: u8 = 1;
pub(crate) const ZERO: u8 = 2;
const NO_RECLAIM: u8 = 4;

/// The part of a cache that only a user cache uses.
pub(crate) struct UserPart {
    pub traits: AtomicU8,
    /// Free objects that reclaim leaves in slabs.
    pub reserve: AtomicUsize,
    pub limit: AtomicUsize,
    /// Objects out, where there is a limit.
    pub used: AtomicUsize,
    pub init: AtomicUsize,
    pub fini: AtomicUsize,
    pub data: AtomicUsize,
    /// Pushes of the caches that had the number before.
    pub frees_before: AtomicU64,
    name: [AtomicU64; NAME_BYTES / 8],
}

impl UserPart {
    pub(crate) const fn new() -> Self {
        Self {
            traits: AtomicU8::new(0),
            reserve: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            used: AtomicUsize::new(0),
            init: AtomicUsize::new(0),
            fini: AtomicUsize::new(0),
            data: AtomicUsize::new(0),
            frees_before: AtomicU64::new(0),
            name: [const { AtomicU64::new(0) }; NAME_BYTES / 8],
        }
    }

    pub(super) fn set(&self, spec: &Spec<'_>) {
        let limited = if spec.limit == usize::MAX { 0 } else { LIMITED };
        let zero = if spec.flags.zero { ZERO } else { 0 };
        let exempt = if spec.flags.no_reclaim { NO_RECLAIM } else { 0 };
        self.traits.store(limited | zero | exempt, Relaxed);
        self.reserve.store(0, Relaxed);
        self.limit.store(spec.limit, Relaxed);
        self.used.store(0, Relaxed);
        self.init.store(spec.init.map_or(0, |f| f as usize), Relaxed);
        self.fini.store(spec.fini.map_or(0, |f| f as usize), Relaxed);
        self.data.store(spec.data as usize, Relaxed);
        let mut name = [0u8; NAME_BYTES];
        let len = spec.name.len().min(NAME_BYTES - 1);
        name[..len].copy_from_slice(&spec.name[..len]);
        for (word, bytes) in self.name.iter().zip(name.chunks_exact(8)) {
            word.store(bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)), Relaxed);
        }
    }

    /// Its name, ended by zeros.
    pub(crate) fn name(&self) -> [u8; NAME_BYTES] {
        let mut name = [0; NAME_BYTES];
        for (bytes, word) in name.chunks_exact_mut(8).zip(&self.name) {
            bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        name
    }

    /// Its free objects are finalized before their slabs go back.
    pub(crate) fn has_finalizer(&self) -> bool {
        self.fini.load(Relaxed) != 0
    }

    /// Free objects keep their contents, or are a reserve: their pages are not released from inside a slab.
    pub(crate) fn retains_pages(&self) -> bool {
        self.init.load(Relaxed) != 0 || self.has_finalizer() || self.reserve.load(Relaxed) > 0
    }

    /// No reclaim touches it.
    pub(crate) fn is_exempt(&self) -> bool {
        self.traits.load(Relaxed) & NO_RECLAIM != 0
    }

    /// Counts `n` more objects out, or as many as the limit lets; returns how many.
    pub(crate) fn count_out(&self, n: usize) -> usize {
        let limit = self.limit.load(Relaxed);
        let before = self.used.fetch_add(n, Relaxed);
        let granted = limit.saturating_sub(before).min(n);
        if granted < n {
            self.used.fetch_sub(n - granted, Relaxed);
        }
        granted
    }
}
