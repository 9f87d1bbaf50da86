//! How shells move between depots, the stash and the system.

use crate::base::run::Run;
use crate::base::time::Time;
use crate::base::units::{Bytes, Order, PAGE};
use crate::caches::depot::Depot;
use crate::caches::depot::shells::{CHUNK, GROUP, Shells};
use crate::caches::geometry::MAX_BATCH;
use crate::caches::heap_caches::Caches;
use crate::platform::Platform;
use crate::platform::lock::Lock;
use crate::platform::rank;
use core::sync::atomic::Ordering::Relaxed;

/// Shells that a depot gets at a time: two, as a bucket is filled and another begun.
const SUPPLY: usize = 2;
/// Runs of a group that no two neighbours of are released.
const RUNS: usize = GROUP / CHUNK / 2;

impl<P: Platform> Caches<P> {
    /// Finds shells for a depot that has none. While memory is too short for buckets to grow in number, only shells
    /// that have memory behind them are found (UMA's last measure). `false`: there is none.
    pub(crate) fn supply_shells(&self, depot: &Lock<Depot, { rank::DEPOT }>) -> bool {
        let mut found = Shells::new();
        let may_grow = !self.are_shells_stopped();
        self.take_shells(&mut found, may_grow);
        if found.is_empty() && may_grow && self.shells.ready() {
            match self.pages.platform.map_metadata(GROUP, Order::of_align(GROUP)) {
                // SAFETY: mapped just now, zero, of a group's length and alignment, with an address that no other
                // thread has; it is never unmapped.
                Ok(group) => unsafe { self.stash.lock(&self.pages.platform).add(group) },
                Err(_) => self.shells.refused(),
            }
            self.take_shells(&mut found, may_grow);
        }
        let supplied = !found.is_empty();
        depot.lock(&self.pages.platform).spare.append(&mut found);
        supplied
    }

    /// Memory was so short a moment ago that buckets may not grow in number.
    fn are_shells_stopped(&self) -> bool {
        let from = self.shells_from.load(Relaxed);
        from > 0 && self.pages.platform.now() < Time(from)
    }

    /// No memory for shells is asked for before `until`, ns.
    pub(crate) fn stop_shells(&self, until: Time) {
        self.shells_from.store(until.0, Relaxed);
    }

    fn take_shells(&self, list: &mut Shells, may_grow: bool) {
        let mut stash = self.stash.lock(&self.pages.platform);
        for _ in 0..SUPPLY {
            match stash.take(list, may_grow) {
                Some(true) => {
                    self.pages.gauges.shell_bytes.add(CHUNK as u64, &self.pages.platform.stats().shell_bytes);
                }
                Some(false) => {}
                None => break,
            }
        }
    }

    /// Takes shells back that a depot needs no more.
    pub(crate) fn give_shells(&self, mut shells: Shells) {
        while !shells.is_empty() {
            self.stash.lock(&self.pages.platform).give(&mut shells, MAX_BATCH);
        }
    }

    /// Ends a window of the stash, and releases what was free in it throughout; returns bytes.
    pub(crate) fn release_stale_shells(&self) -> Bytes {
        let keep = self.stash.lock(&self.pages.platform).end_window();
        self.release_shells(keep)
    }

    /// Releases the memory of free shells, as far as it goes, but for about `keep` of them; returns bytes.
    pub(crate) fn release_shells(&self, mut keep: usize) -> Bytes {
        if self.pages.platform.release_unit() > PAGE {
            return Bytes::ZERO;
        }
        let (mut bytes, mut last) = (Bytes::ZERO, None);
        loop {
            let _in_flight = self.pages.batch(0);
            if self.pages.platform.tunables().report.get() == 0 {
                return bytes;
            }
            let isolated = self.stash.lock(&self.pages.platform).isolate(last, &mut keep);
            let Some(chunks) = isolated else { return bytes };
            let mut runs = [Run::default(); RUNS];
            let mut n = 0;
            for run in chunks.runs() {
                match runs[..n].last_mut() {
                    Some(before) if before.addr + before.len == run.addr => before.len += run.len,
                    _ => {
                        runs[n] = run;
                        n += 1;
                    }
                }
            }
            let released = self.pages.platform.release_metadata(&runs[..n]);
            if released {
                bytes += runs[..n].iter().map(|run| Bytes(run.len)).sum();
                let chunks = (chunks.count() * CHUNK) as u64;
                self.pages.gauges.shell_bytes.sub(chunks, &self.pages.platform.stats().shell_bytes);
            }
            self.stash.lock(&self.pages.platform).put_back(chunks, released);
            last = Some(chunks);
        }
    }
}
