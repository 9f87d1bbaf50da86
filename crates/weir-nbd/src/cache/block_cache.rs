//! The server's cache of blocks: the files that it serves.

use super::cached_file::CachedFile;
use super::shared::{CacheFigures, Shared};
use crate::base::Failure;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The identity of a file, whatever its name: device and inode of a file; device number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// `st_dev`, or `st_rdev` of a block device.
    pub device: u64,
    /// `st_ino`; none of a block device.
    pub inode: Option<u64>,
}

/// One cache for all exports.
pub struct BlockCache {
    shared: Arc<Shared>,
    writes_back: bool,
    files: Mutex<HashMap<FileId, Weak<CachedFile>>>,
    next: AtomicU32,
}

impl BlockCache {
    /// A cache of at most `max` bytes, or of as many as memory allows. `writes_back`: a write is answered when it is
    /// in the cache, and reaches the file later.
    pub fn new(max: Option<u64>, writes_back: bool) -> Result<Arc<Self>, Failure> {
        let shared = Arc::new(Shared::new(max)?);
        Ok(Arc::new(Self { shared, writes_back, files: Mutex::default(), next: AtomicU32::new(0) }))
    }

    /// The file's part of the cache: the same for all that have it open, so that none reads what another has replaced.
    pub fn file(&self, id: FileId) -> Arc<CachedFile> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&id).and_then(Weak::upgrade) {
            return file;
        }
        files.retain(|_, file| file.strong_count() > 0);
        // A number is never used again: blocks of a file that is no longer open are not found, and are evicted.
        let number = self.next.fetch_add(1, Relaxed);
        let file = Arc::new(CachedFile::new(self.shared.clone(), number, self.writes_back));
        files.insert(id, Arc::downgrade(&file));
        file
    }

    /// Figures of what the cache holds and did.
    pub fn figures(&self) -> CacheFigures {
        self.shared.figures()
    }
}
