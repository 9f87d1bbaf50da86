//! The blocks of the cache, and what is counted of them.

use super::stripes::Stripes;
use crate::base::{Failure, machine};
use crate::buffers::{Buffer, locked};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir::{EvictableCache, RemovalCause};

/// Bytes of a cached block: the block of ext4, XFS and the kernel's page cache, and a page of the heap. So what
/// clients write is whole blocks.
pub const BLOCK: usize = 4096;

/// The blocks that a range touches.
pub fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK as u64..range.end.div_ceil(BLOCK as u64)
}

/// A file's number and a block's.
pub type Key = (u32, u64);

/// Bytes that an entry takes beside its block: key, buffer and the cache's own.
const ENTRY: usize = 112;

/// Blocks by their keys. Each is [`BLOCK`] bytes, in pages of its own.
pub struct Store(EvictableCache<Key, Buffer>);

impl Store {
    /// A store of at most `max` bytes, or of as many as memory allows.
    pub fn new(max: Option<u64>) -> Result<Self, Failure> {
        let builder = EvictableCache::builder().name("nbd blocks").weigher(|_: &Key, _: &Buffer| BLOCK + ENTRY);
        let builder = match locked::zone() {
            Some(zone) => builder.values_in(zone, |_, block| block.is_locked()).on_evict(|_, block, cause| {
                if cause == RemovalCause::Pressure && block.is_locked() {
                    locked::note_evicted();
                }
            }),
            None => builder,
        };
        let builder = match max {
            Some(max) => builder.max_bytes(usize::try_from(max).unwrap_or(usize::MAX)),
            None => builder,
        };
        builder.build().map(Self).map_err(Failure::because("the block cache"))
    }

    /// Appends `part` of a block to `out`, if the block is here.
    pub fn copy(&self, key: Key, part: Range<usize>, out: &mut Buffer) -> bool {
        let Some(block) = self.0.get(&key) else { return false };
        out.append(&block.filled()[part]);
        true
    }

    /// Is the block here?
    pub fn contains(&self, key: Key) -> bool {
        self.0.contains(&key)
    }

    /// Puts a block in. Where that is refused, for want of memory, an older one does not stay.
    pub fn insert(&self, key: Key, block: Buffer) {
        if self.0.insert(key, block).is_err() {
            self.0.remove(&key);
        }
    }

    /// Removes a block.
    pub fn remove(&self, key: Key) {
        self.0.remove(&key);
    }

    /// Blocks that are here.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Removes all blocks whose keys are so.
    pub fn remove_where(&self, mut is_it: impl FnMut(&Key) -> bool) {
        self.0.retain(|key, _| !is_it(key));
    }

    /// Says whether writes below lag behind: then it does not grow, and reclaim waits before it takes more.
    fn set_congested(&self, is_congested: bool) {
        self.0.set_congested(is_congested);
    }

    /// Blocks and bytes that are here.
    pub fn size(&self) -> (usize, usize) {
        (self.0.len(), self.0.bytes())
    }
}

/// The cache at one time; counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFigures {
    /// Most bytes; none: as memory allows.
    pub max_bytes: Option<u64>,
    /// Bytes held now.
    pub bytes: u64,
    /// Blocks held now.
    pub blocks: u64,
    /// Blocks that reads found.
    pub hits: u64,
    /// Blocks that reads had to fetch.
    pub misses: u64,
    /// Bytes written by clients and not yet written below: with `write-back` alone.
    pub dirty_bytes: u64,
    /// Blocks written below after their clients were answered.
    pub written_back: u64,
}

/// Most dirty bytes: half a second of a disk of 128 MB/s.
const DIRTY: u64 = 64 << 20;
/// Writes to a file wait where it has more than so many times the dirty bytes that are left free. So a file that cannot be written
/// leaves a part to others, and others a part of that. Alone, a file may have three quarters of all.
const MOST_OF_FREE: u64 = 3;
/// Writing a file below lags behind where it has more than so many times that: a write may wait before it has reached its most.
/// It has caught up when the file has as much as is free.
const LAGS: u64 = 2;
/// Dirty bytes that a cache without a bound may have however small it is: a write below of the most blocks.
const LEAST_DIRTY: u64 = 1 << 20;

/// How many bytes of all files are dirty, and whether it was told that writing them below lags behind.
///
/// The lock is held while the bytes change and while that is told. So of a block that becomes dirty and one that is cleaned at
/// the same time the later one tells last. Otherwise a cache with nothing dirty could be called congested, and not grow.
#[derive(Default)]
struct DirtyBytes {
    bytes: AtomicU64,
    lags: Mutex<bool>,
}

impl DirtyBytes {
    fn get(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.lags.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block more of a file with `own` dirty bytes. Where that is too much of both, it tells so each time, as reclaim forgets it.
    fn add_block(&self, own: &AtomicU64, is_too_much: impl FnOnce(u64, u64) -> bool, tell: impl FnOnce(bool)) {
        let mut lags = self.lock();
        let [own, all] = [own, &self.bytes].map(|bytes| bytes.fetch_add(BLOCK as u64, Relaxed) + BLOCK as u64);
        if is_too_much(own, all) {
            *lags = true;
            tell(true);
        }
    }

    /// A block less. Where few are left, it tells so, once. If another file lags still, its next block tells that: one that can
    /// not be written has none, and does not stop the cache's growth for all.
    fn remove_block(&self, own: &AtomicU64, is_little: impl FnOnce(u64, u64) -> bool, tell: impl FnOnce(bool)) {
        let mut lags = self.lock();
        let [own, all] = [own, &self.bytes].map(|bytes| bytes.fetch_sub(BLOCK as u64, Relaxed) - BLOCK as u64);
        if *lags && is_little(own, all) {
            *lags = false;
            tell(false);
        }
    }
}

/// All of the cache but its files.
pub struct Shared {
    pub store: Store,
    pub stripes: Stripes,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    dirty_bytes: DirtyBytes,
    pub written_back: AtomicU64,
    max: Option<u64>,
}

impl Shared {
    /// Makes a cache of at most `max` bytes, or of as many as memory allows.
    pub fn new(max: Option<u64>) -> Result<Self, Failure> {
        Ok(Self {
            store: Store::new(max)?,
            stripes: Stripes::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            dirty_bytes: DirtyBytes::default(),
            written_back: AtomicU64::new(0),
            max,
        })
    }

    /// A block of a file became dirty: it has `own` dirty bytes.
    pub fn dirtied(&self, own: &AtomicU64) {
        let lags = |own, all| own > LAGS * self.free(all);
        self.dirty_bytes.add_block(own, lags, |lags| self.store.set_congested(lags));
    }

    /// A block of the file is not dirty any more.
    pub fn cleaned(&self, own: &AtomicU64) {
        let has_caught_up = |own, all| own <= self.free(all);
        self.dirty_bytes.remove_block(own, has_caught_up, |lags| self.store.set_congested(lags));
    }

    /// Bytes of blocks that the cache may hold at most, by its own bound or the machine's memory, and by the process's limit.
    pub fn room(&self) -> u64 {
        let most = self.max.unwrap_or_else(machine::memory);
        let limit = weir::settings::get("limit").ok().filter(|&limit| limit > 0);
        let most = most.min(limit.unwrap_or(u64::MAX));
        most / (BLOCK + ENTRY) as u64 * BLOCK as u64
    }

    /// Most dirty bytes: a quarter of the cache. Dirty blocks cannot be evicted, so without a bound that is a quarter of what
    /// the cache has now, with these `dirty` bytes. It is as large as memory lets it be, and shrinks where that is short.
    fn dirty_limit(&self, dirty: u64) -> u64 {
        match self.max {
            Some(max) => (max / 4).clamp(BLOCK as u64, DIRTY),
            None => ((self.store.size().1 as u64 + dirty) / 4).clamp(LEAST_DIRTY, DIRTY),
        }
    }

    /// How many bytes more may be dirty, beside these of all files.
    fn free(&self, dirty: u64) -> u64 {
        self.dirty_limit(dirty).saturating_sub(dirty)
    }

    /// Before `more` bytes of a file become dirty, which has `own` of them: whether some have to be written below first. One that
    /// has none does not wait, however much others have.
    pub fn is_too_dirty(&self, own: &AtomicU64, more: u64) -> bool {
        let own = own.load(Relaxed);
        own > 0 && own + more > MOST_OF_FREE * self.free(self.dirty_bytes.get() + more)
    }

    /// Figures of what the cache holds and did.
    pub fn figures(&self) -> CacheFigures {
        let (blocks, bytes) = self.store.size();
        CacheFigures {
            max_bytes: self.max,
            bytes: bytes as u64,
            blocks: blocks as u64,
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            dirty_bytes: self.dirty_bytes.get(),
            written_back: self.written_back.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = BLOCK as u64;

    /// A cache, and its one file's dirty bytes.
    fn dirtied(max: Option<u64>, bytes: u64) -> (Shared, AtomicU64) {
        let (shared, own) = (Shared::new(max).expect("a cache"), AtomicU64::new(0));
        (0..bytes / SIZE).for_each(|_| shared.dirtied(&own));
        (shared, own)
    }

    #[test]
    fn an_empty_cache_without_a_bound_takes_few_dirty_blocks() {
        let (shared, own) = dirtied(None, LEAST_DIRTY / 4 * 3);
        assert!(!shared.is_too_dirty(&own, 0) && shared.is_too_dirty(&own, SIZE) && *shared.dirty_bytes.lock());
        (0..LEAST_DIRTY / 4 * 3 / SIZE).for_each(|_| shared.cleaned(&own));
        assert!(!shared.is_too_dirty(&own, SIZE) && !*shared.dirty_bytes.lock());
        assert_eq!((own.into_inner(), shared.dirty_bytes.get()), (0, 0));
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_room_to_others_and_all_stay_within_the_bound() {
        const LIMIT: u64 = 1 << 20;
        let shared = Shared::new(Some(4 * LIMIT)).expect("a cache");
        let files = [const { AtomicU64::new(0) }; 4];
        for own in &files {
            while !shared.is_too_dirty(own, SIZE) {
                shared.dirtied(own);
            }
        }
        let had = files.each_ref().map(|own| own.load(Relaxed) / SIZE);
        assert_eq!(had, [192, 48, 12, 3], "three quarters of what the others have left");
        // The last is written, and the first is not.
        assert!(*shared.dirty_bytes.lock());
        shared.cleaned(&files[3]);
        assert!(!*shared.dirty_bytes.lock(), "the cache may grow");
        shared.dirtied(&files[3]);
        assert!(*shared.dirty_bytes.lock() && shared.dirty_bytes.get() < LIMIT);
    }

    #[test]
    fn what_is_told_last_of_dirty_bytes_is_so() {
        let (dirty, told) = (DirtyBytes::default(), std::sync::atomic::AtomicBool::new(false));
        let own = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (added, is_added) = std::sync::mpsc::channel();
            let (cleaned, is_cleaned) = std::sync::mpsc::channel();
            let (dirty, told, own) = (&dirty, &told, &own);
            scope.spawn(move || {
                is_added.recv().expect("a block is dirty");
                dirty.remove_block(own, |own, all| own == 0 && all == 0, |lags| told.store(lags, Relaxed));
                // The other thread may have stopped to wait for it.
                let _ = cleaned.send(());
            });
            dirty.add_block(
                own,
                |_, _| true,
                |lags| {
                    added.send(()).expect("the other thread waits");
                    // It cleans the block before this is told, if it can.
                    let _ = is_cleaned.recv_timeout(std::time::Duration::from_millis(100));
                    told.store(lags, Relaxed);
                },
            );
        });
        assert!(!told.into_inner(), "no block is dirty");
    }

    #[test]
    fn a_larger_cache_takes_more_dirty_blocks() {
        let (shared, own) = dirtied(None, 2 << 20);
        assert!(shared.is_too_dirty(&own, 0));
        shared.store.set_congested(false);
        let block = || Buffer::copy_of(&[1; BLOCK]).expect("memory");
        (0..12 * LEAST_DIRTY / SIZE).for_each(|at| shared.store.insert((0, at), block()));
        assert!(!shared.is_too_dirty(&own, 0));
    }

    #[test]
    fn a_bound_says_how_many_dirty_blocks_there_may_be() {
        let (shared, own) = dirtied(Some(32 << 20), 6 << 20);
        assert!(!shared.is_too_dirty(&own, 0) && shared.is_too_dirty(&own, SIZE), "three quarters of a quarter");
        assert!(!shared.is_too_dirty(&AtomicU64::new(0), SIZE), "another file's");
    }
}
