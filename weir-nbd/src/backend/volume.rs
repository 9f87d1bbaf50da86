//! A volume: an open file, block device or memory file of a fixed size.

use super::flush::Flusher;
use super::medium::Medium;
use crate::buffers::Buffer;
use crate::cache::CachedFile;
use crate::io::{Inline, Reactor};
use std::io::Result;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
    pub(super) size: u64,
    pub(super) read_only: bool,
    /// There may be holes: a look is worth a system call.
    pub(super) may_have_holes: AtomicBool,
    pub(super) flusher: Arc<Flusher>,
}

impl Volume {
    /// Bytes. It stays what it was when the volume was opened.
    pub fn size(&self) -> u64 {
        self.size
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
    /// There may be holes.
    pub fn may_have_holes(&self) -> bool {
        self.may_have_holes.load(Relaxed)
    }
}
