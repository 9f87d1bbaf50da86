//! Reading and writing: through the block cache if the volume has one.

use super::volume::{Kind, Volume};
use crate::buffers::Buffer;
use crate::io::Reactor;
use rustix::fs::{Advice, fadvise};
use std::io::{Error, Result};
use std::num::NonZeroU64;
use std::ops::Range;
use std::rc::Rc;

impl Volume {
    /// The bytes of a range; or the error, and the offset at which it happened.
    pub async fn read(&self, reactor: &Rc<Reactor>, range: Range<u64>) -> std::result::Result<Buffer, (Error, u64)> {
        match &self.cached {
            Some(cached) => self.read_cached(cached, reactor, range).await,
            None => self.medium.read(reactor, range).await,
        }
    }

    /// Writes all of `buffer` at `offset`.
    pub async fn write(&self, reactor: &Rc<Reactor>, offset: u64, buffer: Buffer) -> Result<()> {
        let length = buffer.filled().len();
        self.becomes_data(offset..offset + length as u64);
        match &self.cached {
            Some(cached) => self.write_cached(cached, reactor, offset, buffer).await,
            None => self.medium.write(reactor, offset, buffer, 0..length).await.map(drop),
        }
    }

    /// Makes all that was written before durable. Memory is as durable as the server.
    pub async fn flush(&self, reactor: &Rc<Reactor>) -> Result<()> {
        if self.kind == Kind::Memory { Ok(()) } else { self.flusher.flush(reactor).await }
    }

    /// The same at the server's end, without a worker.
    pub fn flush_at_end(&self) -> Result<()> {
        if self.read_only || self.kind == Kind::Memory {
            return Ok(());
        }
        if let Some(cached) = &self.cached {
            super::write_back::write_back_at_end(&self.medium, cached)?;
        }
        Ok(rustix::fs::fdatasync(&self.medium.file)?)
    }

    /// Has a range read in advance, into the block cache or the kernel's.
    pub async fn read_ahead(&self, reactor: &Rc<Reactor>, range: Range<u64>) -> Result<()> {
        if let Some(cached) = &self.cached {
            return self.fill_cache(cached, reactor, range).await;
        }
        let Some(length) = NonZeroU64::new(range.end - range.start) else { return Ok(()) };
        let file = self.medium.file.clone();
        let advise = move || fadvise(&file, range.start, Some(length), Advice::WillNeed);
        Ok(reactor.blocking(advise).await?)
    }
}
