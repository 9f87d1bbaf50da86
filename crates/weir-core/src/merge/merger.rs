//! The merging of a heap's pages: what is remembered of it, and what the kernel is asked for and says.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::asked::Asked;
use crate::base::run::Run;
use crate::base::units::{PAGE, PageNo};
use crate::caches::Caches;
use crate::caches::slab::Merged;
use crate::platform::Platform;

/// Something has changed since the last pass; a pass is to see what changes further; nothing has changed.
pub(super) const CHANGED: u32 = 0;
pub(super) const SEEN: u32 = 1;
pub(super) const SETTLED: u32 = 2;

/// Memory of merging from one window to the next.
pub struct MergeState {
    pub(super) stage: AtomicU32,
    /// Quiet windows since the last pass.
    pub(super) windows: AtomicU32,
    /// Where the kernel was asked to merge.
    pub(super) asked: Asked,
    /// Not all of that was taken back, when it was: there was no memory.
    pub(super) is_owed: AtomicBool,
    /// The kernel merges nothing, however often it is asked.
    pub(super) is_refused: AtomicBool,
    /// Nothing that is in rings was asked for: the kernel was told to merge no more.
    pub(super) forgets: AtomicBool,
    /// Pages of the process that shared memory before the kernel was asked for any: the program's, or by `MemoryKSM=`.
    pub(super) others: AtomicUsize,
    /// Until when the kernel is expected to go on merging, ns.
    pub(super) settles_at: AtomicU64,
}

impl MergeState {
    pub(crate) const fn new() -> Self {
        Self {
            stage: AtomicU32::new(CHANGED),
            windows: AtomicU32::new(0),
            asked: Asked::new(),
            is_owed: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            forgets: AtomicBool::new(true),
            others: AtomicUsize::new(0),
            settles_at: AtomicU64::new(0),
        }
    }

    /// Merging of the pages of caches.
    pub(crate) fn on<'a, P: Platform>(&'a self, caches: &'a Caches<P>) -> Merger<'a, P> {
        Merger { state: self, caches }
    }
}

/// Merging of the pages of a heap's caches.
pub(crate) struct Merger<'a, P> {
    pub(super) state: &'a MergeState,
    pub(super) caches: &'a Caches<P>,
}

impl<'a, P: Platform> Merger<'a, P> {
    pub(super) fn platform(&self) -> &'a P {
        &self.caches.pages.platform
    }

    /// Whether pages are to be merged, and can be.
    pub(super) fn is_on(&self) -> bool {
        let may = self.platform().release_unit() == PAGE && !self.state.is_refused.load(Relaxed);
        self.platform().tunables().merge.get() != 0 && may && self.platform().merges()
    }

    /// Whether a pass takes what it finds in rings out of them.
    pub(super) fn forgets(&self) -> bool {
        self.state.forgets.load(Relaxed)
    }

    /// Asks the kernel to merge in a range of pages, inside a pass. `false`: there are too many ranges.
    pub(super) fn ask(&self, range: Range<PageNo>) -> bool {
        if !self.state.asked.add(self.platform(), range.clone()) {
            return false;
        }
        let addr = self.caches.pages.normal.addr_of(range.start);
        if !self.platform().set_mergeable(Run { addr, len: (range.end - range.start).length() }, true) {
            self.state.is_refused.store(true, Relaxed);
        }
        true
    }

    /// Takes back all that the kernel was asked for: each page gets memory of its own again. Where there is too little, the next
    /// call goes on.
    pub(super) fn undo(&self) {
        if !self.state.is_owed.swap(false, Relaxed) && self.state.asked.is_empty() {
            return;
        }
        let in_flight = self.caches.pages.batch(0);
        self.state.asked.clear();
        drop(in_flight);
        self.state.forgets.store(true, Relaxed);
        self.caches.pages.each_mapped_row(|row| {
            if !self.platform().set_mergeable(row, false) {
                self.state.is_owed.store(true, Relaxed);
            }
        });
    }

    /// Pages in rings.
    pub(super) fn merged(&self) -> Merged {
        let of = |number: usize| {
            let slabs = self.caches.table.get(number).domains().map(|domain| domain.slabs.lock(self.platform()).merged);
            slabs.fold(Merged::NONE, Merged::and)
        };
        self.caches.reclaimable().map(of).fold(Merged::NONE, Merged::and)
    }

    /// Pages of `merged` that have no memory of their own, by what the kernel says: of each ring one has.
    pub(super) fn shared(&self, merged: Merged) -> usize {
        if merged.spared == 0 {
            return 0;
        }
        let not_spared = self.state.others.load(Relaxed) + merged.pages - merged.spared;
        self.platform().merged_pages().saturating_sub(not_spared).min(merged.spared)
    }
}
