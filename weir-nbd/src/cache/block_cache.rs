//! The server's cache of blocks, and the files that it serves.

use super::BLOCK;
use super::cached_file::CachedFile;
use super::figures::CacheFigures;
use super::store::Store;
use super::stripes::Stripes;
use crate::base::Failure;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What a file is known by, whatever its name: device and inode of a file; device number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// `st_dev`, or `st_rdev` of a block device.
    pub device: u64,
    /// `st_ino`; none of a block device.
    pub inode: Option<u64>,
}

/// Dirty bytes of a cache without a bound, above which writes wait: half a second of a disk of 128 MB/s.
const DIRTY: u64 = 64 << 20;

/// One cache for all exports.
pub struct BlockCache {
    pub(super) store: Store,
    pub(super) stripes: Stripes,
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) dirty_bytes: AtomicU64,
    pub(super) written_back: AtomicU64,
    max: Option<u64>,
    writes_back: bool,
    /// Most dirty bytes.
    dirty_limit: u64,
    files: Mutex<HashMap<FileId, Weak<CachedFile>>>,
    next: AtomicU32,
}

impl BlockCache {
    /// A cache of at most `max` bytes, or of as many as memory allows. `writes_back`: a write is answered when it is
    /// in the cache, and reaches the file later.
    pub fn new(max: Option<u64>, writes_back: bool) -> Result<Arc<Self>, Failure> {
        let dirty_limit = max.map_or(DIRTY, |max| (max / 4).clamp(BLOCK as u64, DIRTY));
        Ok(Arc::new(Self {
            store: Store::new(max)?,
            stripes: Stripes::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            dirty_bytes: AtomicU64::new(0),
            written_back: AtomicU64::new(0),
            max,
            writes_back,
            dirty_limit,
            files: Mutex::default(),
            next: AtomicU32::new(0),
        }))
    }

    /// The file's part of the cache: the same for all that have it open, so that none reads what another has replaced.
    pub fn file(self: &Arc<Self>, id: FileId) -> Arc<CachedFile> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&id).and_then(Weak::upgrade) {
            return file;
        }
        files.retain(|_, file| file.strong_count() > 0);
        // A number is never used again: blocks of a file that is no longer open are not found, and are evicted.
        let file = Arc::new(CachedFile::new(self.clone(), self.next.fetch_add(1, Relaxed), self.writes_back));
        files.insert(id, Arc::downgrade(&file));
        file
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
