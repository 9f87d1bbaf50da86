//! The way of shells between depots, the stash and the system.

use crate::bucket::Depot;
use crate::geometry::MAX_BATCH;
use crate::heap::Heap;
use crate::lock::Lock;
use crate::page::PAGE;
use crate::platform::{Platform, Run};
use crate::shells::{CHUNK, GROUP, Shells};
use crate::stats;
use core::sync::atomic::Ordering::Relaxed;

/// Shells that a depot gets at a time: two, as a bucket is filled and another begun.
const SUPPLY: usize = 2;
/// Runs of a group that no two neighbours of are released.
const RUNS: usize = GROUP / CHUNK / 2;

impl<P: Platform> Heap<P> {
    /// Finds shells for a depot that has none, but none that would take memory while that is too short for buckets to grow
    /// (UMA's last measure). `false`: there is none.
    pub(crate) fn supply_shells(&self, depot: &Lock<Depot, 2>) -> bool {
        let mut found = Shells::new();
        let may_grow = !self.shells_stopped();
        self.take_shells(&mut found, may_grow);
        if found.is_empty() && may_grow && self.shells.ready() {
            match self.platform.map_metadata(GROUP, GROUP) {
                // SAFETY: mapped just now.
                Some(group) => unsafe { self.stash.lock(&self.platform).add(group) },
                None => self.shells.refused(),
            }
            self.take_shells(&mut found, may_grow);
        }
        let supplied = !found.is_empty();
        depot.lock(&self.platform).spare.append(&mut found);
        supplied
    }

    fn take_shells(&self, list: &mut Shells, may_grow: bool) {
        let mut stash = self.stash.lock(&self.platform);
        for _ in 0..SUPPLY {
            match stash.take(list, may_grow) {
                Some(true) => stats::add(&self.platform.stats().metadata_bytes, CHUNK as u64),
                Some(false) => {}
                None => break,
            }
        }
    }

    /// Takes shells back that a depot needs no more.
    pub(crate) fn give_shells(&self, mut shells: Shells) {
        while !shells.is_empty() {
            self.stash.lock(&self.platform).give(&mut shells, MAX_BATCH);
        }
    }

    /// Ends a window of the stash, and releases what was free in it throughout; returns bytes.
    pub(crate) fn release_stale_shells(&self) -> usize {
        let keep = self.stash.lock(&self.platform).end_window();
        self.release_shells(keep)
    }

    /// Releases the memory of free shells, as far as it goes, but for about `keep` of them; returns bytes.
    pub(crate) fn release_shells(&self, mut keep: usize) -> usize {
        if self.platform.release_unit() > PAGE {
            return 0;
        }
        let (mut bytes, mut last) = (0, None);
        loop {
            let _in_flight = self.balancer.batch(&self.platform, 0);
            if self.platform.tunables().report.get() == 0 {
                return bytes;
            }
            let isolated = self.stash.lock(&self.platform).isolate(last, &mut keep);
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
            let released = self.platform.release_metadata(&runs[..n]);
            if released {
                bytes += runs[..n].iter().map(|run| run.len).sum::<usize>();
                let chunks = (chunks.count() * CHUNK) as u64;
                self.platform.stats().metadata_bytes.fetch_sub(chunks, Relaxed);
            }
            self.stash.lock(&self.platform).put_back(chunks, released);
            last = Some(chunks);
        }
    }
}
