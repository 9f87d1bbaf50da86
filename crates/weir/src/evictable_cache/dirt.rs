//! What a cache counts of its dirty entries, and its callback.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use weir_linux::process::evictable_caches as process;

use super::closure::Closure;
use super::header::Header;
use super::stats::EvictableStats;

/// Entries handed out at a time.
pub const BATCH: usize = 32;
/// Threads in the callback at a time.
const CALLERS: usize = 8;

/// What writes entries back: it gets the cache's address and so many of its entries, and completes each.
pub type Writer = dyn Fn(NonNull<()>, &[NonNull<Header>]) + Send + Sync;

/// The state of a cache's write-backs.
pub struct Dirt {
    pub writer: Option<Closure<Writer>>,
    /// Handles that are out. Who waits for write-backs sleeps on it.
    pub handles: AtomicU32,
    pub dirty_bytes: AtomicUsize,
    pub dirty_entries: AtomicUsize,
    writing_bytes: AtomicUsize,
    pub done: AtomicU64,
    pub failed: AtomicU64,
    pub is_short: AtomicBool,
    /// The threads that are in the callback.
    pub callers: [AtomicUsize; CALLERS],
}

impl Dirt {
    /// Nothing dirty.
    pub const fn new(writer: Option<Closure<Writer>>) -> Self {
        Self {
            writer,
            handles: AtomicU32::new(0),
            dirty_bytes: AtomicUsize::new(0),
            dirty_entries: AtomicUsize::new(0),
            writing_bytes: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            callers: [const { AtomicUsize::new(0) }; CALLERS],
        }
    }

    /// Whether the cache was made with a callback.
    pub fn is_possible(&self) -> bool {
        self.writer.is_some()
    }

    /// Bytes that cannot go before they are written back.
    pub fn bytes(&self) -> usize {
        self.dirty_bytes.load(Relaxed) + self.writing_bytes.load(Relaxed)
    }

    /// An eviction found fewer clean entries than it wanted.
    pub fn note_shortage(&self) {
        if self.bytes() > 0 {
            self.is_short.store(true, Relaxed);
        }
    }

    /// Whether evictions were short of clean entries, and write-backs are to come or under way.
    pub fn is_congested(&self) -> bool {
        self.is_short.load(Relaxed) && self.bytes() > 0
    }

    /// Its part of the figures.
    pub fn count(&self, stats: &mut EvictableStats) {
        stats.write_backs = self.done.load(Relaxed);
        stats.write_back_errors = self.failed.load(Relaxed);
        stats.dirty_bytes = self.dirty_bytes.load(Relaxed);
        stats.dirty_entries = self.dirty_entries.load(Relaxed);
        stats.writing = self.handles.load(Relaxed) as usize;
        stats.is_congested = self.is_congested();
    }

    /// In a forked child: no thread that was in the callback is there.
    pub fn inherit(&self) {
        let this = process::this_thread();
        for caller in self.callers.iter().filter(|caller| caller.load(Relaxed) != this) {
            caller.store(0, Relaxed);
        }
        self.handles.store(0, Relaxed);
    }

    /// Whether the calling thread is in the callback.
    pub fn is_in_callback(&self) -> bool {
        let this = process::this_thread();
        self.callers.iter().any(|caller| caller.load(Relaxed) == this)
    }

    /// Counts an entry as dirty or clean.
    pub fn set_dirty(&self, header: &Header, on: bool) {
        if header.is_dirty() == on {
            return;
        }
        header.set_dirty(on);
        if on {
            self.dirty_bytes.fetch_add(header.weight, Relaxed);
            self.dirty_entries.fetch_add(1, Relaxed);
        } else {
            self.dirty_bytes.fetch_sub(header.weight, Relaxed);
            // After its handle was counted, if it gets one: see `is_clean`.
            self.dirty_entries.fetch_sub(1, Release);
        }
    }

    /// Counts an entry as being written back, or not any more.
    pub fn set_writing(&self, header: &Header, on: bool) {
        header.set_writing(on);
        if on {
            self.writing_bytes.fetch_add(header.weight, Relaxed);
        } else if !header.is_out() {
            self.writing_bytes.fetch_sub(header.weight, Relaxed);
        }
    }

    /// An entry leaves the cache, under its shard's lock: what it weighs is no part of what the cache holds any more, also
    /// while it is being written back.
    pub fn leave(&self, header: &Header) {
        if header.is_writing() {
            self.writing_bytes.fetch_sub(header.weight, Relaxed);
        }
        header.set_out(true);
    }

    /// Whether nothing is dirty or being written back.
    ///
    /// An entry that is handed out is counted among the handles first, and then not among the dirty ones any more. These are
    /// read in the other order: read the first way round, an entry handed out in between would be in neither.
    pub fn is_clean(&self) -> bool {
        self.dirty_entries.load(Acquire) == 0 && self.handles.load(Acquire) == 0
    }

    /// Sleeps until a handle is completed, or for no reason.
    pub fn wait(&self, handles: u32) {
        process::sleep(&self.handles, handles);
    }
}

/// A thread's place among the callers, given up when dropped.
pub struct Caller<'a>(&'a AtomicUsize);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

impl Dirt {
    /// A place among the callers for this thread; `None`: as many are there as may be.
    pub fn enter(&self) -> Option<Caller<'_>> {
        let this = process::this_thread();
        let claim = |at: &&AtomicUsize| at.compare_exchange(0, this, Acquire, Relaxed).is_ok();
        self.callers.iter().find(claim).map(Caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_while_it_is_written_back_is_counted_out_once() {
        let dirt = Dirt::new(None);
        let mut header = Header::new(1);
        header.weight = 100;
        dirt.set_writing(&header, true);
        assert_eq!(dirt.bytes(), 100);
        dirt.leave(&header);
        assert_eq!(dirt.bytes(), 0, "the cache holds it no more, so it is no part of what it holds and cannot evict");
        dirt.set_writing(&header, false);
        assert_eq!(dirt.bytes(), 0);
    }
}
