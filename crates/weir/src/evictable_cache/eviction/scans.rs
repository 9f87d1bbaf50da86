//! Evictions for pressure that are under way: a cache outlives them, also where their listener ends its last handle.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::room::place_of;
use crate::evictable_cache::host::thread;

/// Threads whose scans are told apart. If there are more, two may count as one.
const THREADS: usize = 16;

/// The scans of each thread.
pub struct Scans([AtomicUsize; THREADS]);

impl Scans {
    /// None.
    pub const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; THREADS])
    }

    /// Counts one of the calling thread until what is returned is dropped.
    pub fn begin(&self) -> Scan<'_> {
        let scans = &self.0[place_of(thread(), THREADS)];
        scans.fetch_add(1, Relaxed);
        Scan(scans)
    }

    /// Whether there is one.
    pub fn are_there(&self) -> bool {
        self.0.iter().any(|scans| scans.load(Relaxed) > 0)
    }

    /// Forgets those of other threads than the calling one, in a forked child, where they never end.
    #[cfg(not(plain))]
    pub fn inherit(&self) {
        let own = place_of(thread(), THREADS);
        let others = self.0.iter().enumerate().filter(|&(at, _)| at != own);
        others.for_each(|(_, scans)| scans.store(0, Relaxed));
    }
}

/// A scan.
pub struct Scan<'a>(&'a AtomicUsize);

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
