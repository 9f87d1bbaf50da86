//! When pages are merged, and what reclaim and the figures ask.
//!
//! Merging happens in a program at rest. A quiet window begins it by a first pass, which notes which slabs are as they are. After
//! `merge_windows` more quiet windows a second pass merges those that have not changed. Passes go on until one finds nothing that
//! changed. A pass is made at once under severe pressure, and when the program asks for all that is idle. It merges what has not
//! changed since the one before. So a page that is used is left alone: to fill one again that is merged costs memory first.
//!
//! With the setting at 0 a window's end costs a look at it, and where the kernel merges nothing (`run` in
//! `/sys/kernel/mm/ksm`) one more.

use core::sync::atomic::Ordering::Relaxed;

use super::merger::{CHANGED, Merger, SEEN, SETTLED};
use super::pass::{Found, Work};
use crate::base::run::Run;
use crate::base::time::{Nanos, Time};
use crate::base::units::{Bytes, PAGE};
use crate::caches::slab::Merged;
use crate::pages::figures::resident_bytes;
use crate::platform::Platform;
use crate::reclaim::{Ended, Figures, Goal, Measured, Reclaimable, Reclaimed, Step, Steps, Usage};

/// How long the kernel's merging is watched for the figures. The kernel scans 100 pages in 20 ms, by default, and
/// needs two scans.
const SETTLING: Nanos = Nanos::of_ms(20_000);
/// Part of what was expected to be merged that counts as all: pages that the program writes to are not merged.
const NEARLY_ALL: (usize, usize) = (98, 100);

impl<P: Platform> Merger<'_, P> {
    /// A window ends.
    fn window_ended(&self, ended: Ended) {
        let state = self.state;
        if self.platform().tunables().merge.get() == 0 {
            self.undo();
            // Where it is switched on again, it is tried again.
            state.is_refused.store(false, Relaxed);
            return state.stage.store(CHANGED, Relaxed);
        }
        if !ended.quiet || ended.first_quiet {
            return state.stage.store(CHANGED, Relaxed);
        }
        let is_due = match state.stage.load(Relaxed) {
            CHANGED => true,
            SEEN => {
                u64::from(state.windows.fetch_add(1, Relaxed)) + 1 >= self.platform().tunables().merge_windows.get()
            }
            _ => false,
        };
        if is_due && self.is_on() {
            self.merge();
        }
    }

    /// One pass.
    fn merge(&self) {
        if self.state.asked.is_full() {
            // What is made equal would not be merged.
            if self.merged() == Merged::NONE {
                self.undo();
            }
            return self.state.stage.store(SETTLED, Relaxed);
        }
        if self.state.asked.is_empty() {
            self.state.others.store(self.platform().merged_pages(), Relaxed);
        }
        let found = self.pass(Work::Merge);
        self.state.forgets.store(false, Relaxed);
        self.state.windows.store(0, Relaxed);
        self.state.stage.store(if found.changed > 0 { SEEN } else { SETTLED }, Relaxed);
        if found.bytes > 0 {
            self.state.settles_at.store((self.platform().now() + SETTLING).0, Relaxed);
        } else if self.merged() == Merged::NONE {
            self.undo();
        }
    }

    /// Whether there is a pass to come, the kernel goes on merging, or pages are to get their own memory: calm windows go on too.
    pub(crate) fn is_waiting(&self) -> bool {
        let is_settling = || {
            let until = self.state.settles_at.load(Relaxed);
            let (part, whole) = NEARLY_ALL;
            let is_done = || self.shared(self.merged()) * whole >= self.merged().spared * part;
            let waits = until > 0 && self.platform().now() < Time(until) && !is_done();
            if until > 0 && !waits {
                self.state.settles_at.store(0, Relaxed);
            }
            waits
        };
        if self.platform().tunables().merge.get() == 0 {
            return self.state.is_owed.load(Relaxed);
        }
        self.state.stage.load(Relaxed) == SEEN && self.is_on() || is_settling()
    }

    /// Bytes that merging would release, of what is not merged yet, whether or not it is used. O(pages of the heap), and up to
    /// 13 us a page that could be merged.
    pub(crate) fn would_release(&self) -> usize {
        let Found { bytes, .. } = self.pass(Work::Count);
        bytes
    }

    /// Bytes that the kernel has still to merge of those that were made equal to others. What it did not merge in its time it will
    /// not: the program has written there since.
    pub(crate) fn awaited_bytes(&self) -> usize {
        let is_over = || self.platform().now() >= Time(self.state.settles_at.load(Relaxed));
        if self.state.asked.is_empty() || is_over() {
            return 0;
        }
        let merged = self.merged();
        (merged.spared - self.shared(merged)) * PAGE
    }

    /// Bytes of the heap that have no memory of their own.
    fn merged_bytes(&self) -> usize {
        if self.state.asked.is_empty() { 0 } else { self.shared(self.merged()) * PAGE }
    }
}

/// It counts nothing: what is merged is free once the kernel has come by.
impl<P: Platform> Reclaimable for Merger<'_, P> {
    fn steps(&self) -> Steps {
        Steps::of(&[Step::Merge])
    }

    fn scan(&self, _step: Step, goal: &Goal) -> Reclaimed {
        match goal.ended {
            Some(ended) => self.window_ended(ended),
            None if self.is_on() => self.merge(),
            None => {}
        }
        Reclaimed::default()
    }
}

impl<P: Platform> Measured for Merger<'_, P> {
    fn publish(&self, figures: &mut Figures, waits: bool) {
        if waits {
            figures.merged = Bytes(self.merged_bytes()).min(figures.fragmented);
            figures.fragmented -= figures.merged;
        }
    }

    fn metadata(&self) -> usize {
        let bytes = |memory: Run| resident_bytes(self.platform(), memory).unwrap_or(memory.len);
        self.state.asked.memory().map_or(0, bytes)
    }

    fn add_usage(&self, usage: &mut Usage) {
        usage.merged = self.merged_bytes().min(usage.fragmented);
        usage.fragmented -= usage.merged;
    }
}
