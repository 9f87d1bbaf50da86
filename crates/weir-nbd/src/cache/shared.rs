//! What all files in the cache share: the blocks, the stripes and what is counted.

use super::block::BLOCK;
use super::figures::CacheFigures;
use super::store::Store;
use super::stripes::Stripes;
use crate::base::Failure;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Dirty bytes of a cache without a bound, above which writes wait: half a second of a disk of 128 MB/s.
const DIRTY: u64 = 64 << 20;

/// All of the cache but its files.
pub struct Shared {
    pub store: Store,
    pub stripes: Stripes,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub dirty_bytes: AtomicU64,
    pub written_back: AtomicU64,
    max: Option<u64>,
    /// Most dirty bytes.
    dirty_limit: u64,
}

impl Shared {
    /// Of a cache of at most `max` bytes, or of as many as memory allows.
    pub fn new(max: Option<u64>) -> Result<Self, Failure> {
        Ok(Self {
            store: Store::new(max)?,
            stripes: Stripes::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            dirty_bytes: AtomicU64::new(0),
            written_back: AtomicU64::new(0),
            max,
            dirty_limit: max.map_or(DIRTY, |max| (max / 4).clamp(BLOCK as u64, DIRTY)),
        })
    }

    /// Writes have to wait for some to be written below.
    pub fn is_too_dirty(&self) -> bool {
        self.dirty_bytes.load(Relaxed) > self.dirty_limit
    }

    /// What it holds and did.
    pub fn figures(&self) -> CacheFigures {
        let (blocks, bytes) = self.store.size();
        CacheFigures {
            max_bytes: self.max,
            bytes: bytes as u64,
            blocks: blocks as u64,
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            dirty_bytes: self.dirty_bytes.load(Relaxed),
            written_back: self.written_back.load(Relaxed),
        }
    }
}
