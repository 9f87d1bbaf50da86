//! Reading and writing.

use super::volume::{Kind, Volume};
use crate::buffers::Buffer;
use crate::io::Reactor;
use rustix::fs::{Advice, fadvise};
use std::io::{Error, ErrorKind, Result};
use std::num::NonZeroU64;
use std::ops::Range;
use std::rc::Rc;

impl Volume {
    /// The bytes of a range; or the error, and the offset at which it happened.
    pub async fn read(&self, reactor: &Rc<Reactor>, range: Range<u64>) -> std::result::Result<Buffer, (Error, u64)> {
        let length = (range.end - range.start) as usize;
        let mut buffer = Buffer::take(length).map_err(|why| (why, range.start))?;
        while buffer.filled().len() < length {
            let done = buffer.filled().len();
            let at = range.start + done as u64;
            let (read, returned) = reactor.read_at(&self.file, buffer, length - done, at, self.inline).await;
            buffer = returned;
            match read {
                Ok(0) => {
                    let message = "the file has become shorter than the export";
                    return Err((Error::new(ErrorKind::UnexpectedEof, message), at));
                }
                Err(why) if is_worth_a_retry(&why) => {}
                read => drop(read.map_err(|why| (why, at))?),
            }
        }
        Ok(buffer)
    }

    /// Writes all of `buffer` at `offset`.
    pub async fn write(&self, reactor: &Rc<Reactor>, offset: u64, buffer: Buffer) -> Result<()> {
        let length = buffer.filled().len();
        self.write_part(reactor, offset, buffer, length).await.map(drop)
    }

    /// Writes the first `length` bytes of `buffer` at `offset`.
    pub(super) async fn write_part(
        &self,
        reactor: &Rc<Reactor>,
        offset: u64,
        mut buffer: Buffer,
        length: usize,
    ) -> Result<Buffer> {
        let mut done = 0;
        while done < length {
            let (written, returned) =
                reactor.write_at(&self.file, buffer, done..length, offset + done as u64, self.inline).await;
            buffer = returned;
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(why) if is_worth_a_retry(&why) => {}
                written => done += written?,
            }
        }
        Ok(buffer)
    }

    /// Makes all that was written before durable. Memory is as durable as the server.
    pub async fn flush(&self, reactor: &Rc<Reactor>) -> Result<()> {
        if self.kind == Kind::Memory { Ok(()) } else { self.flusher.flush(reactor).await }
    }

    /// The same at the server's end, without a worker.
    pub fn flush_at_end(&self) -> Result<()> {
        let is_needed = !self.read_only && self.kind != Kind::Memory;
        if is_needed { Ok(rustix::fs::fdatasync(&self.file)?) } else { Ok(()) }
    }

    /// Has the kernel read a range in advance.
    pub async fn read_ahead(&self, reactor: &Rc<Reactor>, range: Range<u64>) -> Result<()> {
        let Some(length) = NonZeroU64::new(range.end - range.start) else { return Ok(()) };
        let file = self.file.clone();
        let advise = move || fadvise(&file, range.start, Some(length), Advice::WillNeed);
        Ok(reactor.blocking(advise).await?)
    }
}

/// A signal, or io_uring short of something for a moment.
fn is_worth_a_retry(why: &Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}
