//! A volume: an open file, block device or memory file of a fixed size.

use super::data_map::DataMap;
use super::flush::Flusher;
use super::medium::Medium;
use crate::buffers::Buffer;
use crate::cache::CachedFile;
use crate::io::{self, Inline};
use rustix::fs::{Advice, SeekFrom, fadvise, fstat, seek};
use std::io::{Error, Result};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The kind of thing behind a volume's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A block device, which discards and zeroes whole sectors of this many bytes.
    BlockDevice { sector: u32, zeroes: Zeroes },
    /// A file in memory (`memfd`), gone with the server.
    Memory,
}

/// How a block device makes zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroes {
    /// It has no command for that: they are written as data.
    AsData,
    /// By a command. It may take as long as writing.
    ByCommand,
    /// By a command that is fast, as it writes nothing.
    Fast,
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
    /// The map of what needs no look for holes; none of a block device, which has no holes.
    pub(super) data: Option<Arc<DataMap>>,
    pub(super) flusher: Arc<Flusher>,
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
        if let Some(data) = &self.data {
            data.grow(found);
        }
        Ok((self.size.fetch_max(found, Relaxed) < found).then_some(found))
    }
    /// Opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
    /// The bytes are in memory: a read is a copy, and waits for no disk, unless they were swapped out.
    pub fn is_in_memory(&self) -> bool {
        self.medium.inline == Inline::Always
    }
    /// The kind of thing behind it, in a word.
    pub fn kind(&self) -> &'static str {
        match self.kind {
            Kind::File => "file",
            Kind::BlockDevice { .. } => "block device",
            Kind::Memory => "memory",
        }
    }
    /// There is no hole in the range, as far as is known without a look.
    pub fn is_data(&self, range: &Range<u64>) -> bool {
        self.data.as_ref().is_none_or(|data| data.end(range.start, range.end) >= range.end)
    }
    /// The range is data from now on.
    pub(super) fn becomes_data(&self, range: Range<u64>) {
        if let Some(data) = &self.data {
            data.add(range);
        }
    }

    // ---- through the block cache if the volume has one

    /// The bytes of a range; or the error, and the offset at which it happened.
    pub async fn read(&self, range: Range<u64>) -> std::result::Result<Buffer, (Error, u64)> {
        match &self.cached {
            Some(cached) => self.read_cached(cached, range).await,
            None => self.medium.read(range).await,
        }
    }

    /// Writes all of `buffer` at `offset`.
    pub async fn write(&self, offset: u64, buffer: Buffer) -> Result<()> {
        let length = buffer.filled().len();
        self.becomes_data(offset..offset + length as u64);
        match &self.cached {
            Some(cached) => self.write_cached(cached, offset, buffer).await,
            None => self.medium.write(offset, buffer, 0..length).await.map(drop),
        }
    }

    /// Makes all that was written before durable. Memory is as durable as the server.
    pub async fn flush(&self) -> Result<()> {
        if self.kind == Kind::Memory { Ok(()) } else { self.flusher.flush().await }
    }

    /// What flushes it at the server's end; none where nothing is to be flushed.
    pub fn flusher(&self) -> Option<&Arc<Flusher>> {
        let has_writes = !self.read_only && self.kind != Kind::Memory;
        has_writes.then_some(&self.flusher)
    }

    /// Has a range read in advance, into the block cache as long as it `is_wanted`, or into the kernel's.
    pub async fn read_ahead(&self, range: Range<u64>, is_wanted: impl Fn() -> bool) -> Result<()> {
        if let Some(cached) = &self.cached {
            return self.fill_cache(cached, range, is_wanted).await;
        }
        let Some(length) = NonZeroU64::new(range.end - range.start) else { return Ok(()) };
        let file = self.medium.file.clone();
        let advise = move || fadvise(&file, range.start, Some(length), Advice::WillNeed);
        Ok(io::on_thread(&self.medium.file, advise).await?)
    }
}
