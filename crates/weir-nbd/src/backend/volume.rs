//! A volume: an open file, block device or memory file of a fixed size.

use super::data_map::DataMap;
use super::flush::Flusher;
use super::medium::Medium;
use super::volume_lock::VolumeLock;
use crate::buffers::Buffer;
use crate::cache::CachedFile;
use crate::io::{Inline, Reactor};
use rustix::fs::{SeekFrom, fstat, seek};
use std::io::Result;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is behind a volume's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A block device, which discards and zeroes whole sectors of this many bytes.
    BlockDevice { sector: u32 },
    /// A file in memory (`memfd`), gone with the server.
    Memory,
}

/// The bytes of an export.
pub struct Volume {
    pub(super) medium: Arc<Medium>,
    /// Its part of the block cache; none without one, and where the bytes are in memory already.
    pub(super) cached: Option<Arc<CachedFile>>,
    pub(super) kind: Kind,
    /// Bytes; one number for all that have the file open with a cache.
    pub(super) size: Arc<AtomicU64>,
    pub(super) read_only: bool,
    /// What needs no look for holes; none of a block device, which has no holes.
    pub(super) data: Option<Arc<DataMap>>,
    pub(super) flusher: Arc<Flusher>,
    /// Of a file or block device that may be written.
    pub(super) _lock: Option<Arc<VolumeLock>>,
}

impl Volume {
    /// Bytes, as many as were found last.
    pub fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }
    /// Looks whether the volume has grown, and to how many bytes. One that has become shorter keeps its size: clients rely
    /// on it, and find out where something is missing.
    pub fn grow(&self) -> Result<Option<u64>> {
        let found = match self.kind {
            Kind::File => fstat(&self.medium.file)?.st_size as u64,
            Kind::BlockDevice { .. } => seek(&self.medium.file, SeekFrom::End(0))?,
            Kind::Memory => return Ok(None),
        };
        Ok((self.size.fetch_max(found, Relaxed) < found).then_some(found))
    }
    /// Opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
    /// The bytes are in memory: a read is a copy, and never waits for a disk.
    pub fn is_in_memory(&self) -> bool {
        self.medium.inline == Inline::Always
    }
    /// What is behind it, in a word.
    pub fn kind(&self) -> &'static str {
        match self.kind {
            Kind::File => "file",
            Kind::BlockDevice { .. } => "block device",
            Kind::Memory => "memory",
        }
    }
    /// Room for `length` bytes to write.
    pub fn buffer(&self, reactor: &Rc<Reactor>, length: usize) -> Result<Buffer> {
        self.medium.buffer(reactor, length)
    }
    /// There is no hole in the range, as far as is known without a look.
    pub fn is_data(&self, range: &Range<u64>) -> bool {
        self.data.as_ref().is_none_or(|data| data.end(range.start) >= range.end)
    }
    /// The range is data from now on.
    pub(super) fn becomes_data(&self, range: Range<u64>) {
        if let Some(data) = &self.data {
            data.add(range);
        }
    }
}
