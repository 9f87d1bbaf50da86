//! The bytes of a file, as they are read and written. The way is past the kernel's page cache where the server has a
//! cache of its own and the range allows it, else through it.

use super::volume_lock::VolumeLock;
use crate::buffers::Buffer;
use crate::cache::WriteTurns;
use crate::io::{Inline, read_at, write_at};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Largest alignment that direct I/O needs of offsets, lengths and addresses, bytes.
pub const ALIGNMENT: u64 = 4096;

/// An open file.
pub struct Medium {
    pub(super) file: Arc<OwnedFd>,
    /// That file, opened for direct I/O.
    pub(super) direct: Option<Direct>,
    pub(super) inline: Inline,
    /// Held for as long as something may be written through it: dirty blocks outlive their volume.
    pub(super) _lock: Option<Arc<VolumeLock>>,
}

/// A file that is open for direct I/O.
pub struct Direct {
    pub(super) file: Arc<OwnedFd>,
    /// A write of either kind waits here for those of the other kind.
    pub(super) turns: Arc<WriteTurns>,
}

impl Medium {
    /// The descriptor for an operation: the direct one where that is possible, and was not refused before.
    fn choose(&self, offset: u64, length: usize, address: *const u8, is_refused: bool) -> Chosen<'_> {
        let is_aligned = [offset, length as u64, address as u64].iter().all(|number| number.is_multiple_of(ALIGNMENT));
        match &self.direct {
            Some(direct) if is_aligned && length > 0 && !is_refused => {
                Chosen { file: &direct.file, inline: self.inline.direct(), is_direct: true }
            }
            _ => Chosen { file: &self.file, inline: self.inline, is_direct: false },
        }
    }

    /// The bytes of a range; or the error, and the offset at which it happened.
    pub async fn read(&self, range: Range<u64>) -> std::result::Result<Buffer, (Error, u64)> {
        let length = (range.end - range.start) as usize;
        let buffer = Buffer::take(length).map_err(|why| (why, range.start))?;
        self.append(buffer, range).await
    }

    /// Appends the bytes of a range to a buffer, which has room for them.
    pub async fn append(&self, mut buffer: Buffer, range: Range<u64>) -> std::result::Result<Buffer, (Error, u64)> {
        let (before, length) = (buffer.filled().len(), (range.end - range.start) as usize);
        let mut is_refused = false;
        while buffer.filled().len() - before < length {
            let done = buffer.filled().len() - before;
            let at = range.start + done as u64;
            let chosen = self.choose(at, length - done, buffer.spare().as_ptr().cast(), is_refused);
            let (read, returned) = read_at(chosen.file, buffer, length - done, at, chosen.inline).await;
            buffer = returned;
            match read {
                Ok(0) => {
                    let message = "the file has become shorter than the export";
                    return Err((Error::new(ErrorKind::UnexpectedEof, message), at));
                }
                Err(why) if chosen.is_refused_by(&why) => is_refused = true,
                Err(why) if is_worth_a_retry(&why) => {}
                read => drop(read.map_err(|why| (why, at))?),
            }
        }
        Ok(buffer)
    }

    /// Writes a part of `buffer` at `offset`.
    pub async fn write(&self, offset: u64, mut buffer: Buffer, part: Range<usize>) -> Result<Buffer> {
        let (mut done, mut is_refused) = (part.start, false);
        while done < part.end {
            let at = offset + (done - part.start) as u64;
            let chosen = self.choose(at, part.end - done, &buffer.filled()[done], is_refused);
            let range = at..at + (part.end - done) as u64;
            let _turns = match &self.direct {
                Some(direct) => direct.turns.take(range, chosen.is_direct).await,
                None => Vec::new(),
            };
            let (written, returned) = write_at(chosen.file, buffer, done..part.end, at, chosen.inline).await;
            buffer = returned;
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(why) if chosen.is_refused_by(&why) => is_refused = true,
                Err(why) if is_worth_a_retry(&why) => {}
                written => done += written?,
            }
        }
        Ok(buffer)
    }
}

/// The descriptor that an operation uses.
struct Chosen<'a> {
    file: &'a Arc<OwnedFd>,
    inline: Inline,
    is_direct: bool,
}

impl Chosen<'_> {
    /// Direct I/O is not possible here (`EINVAL`), or not now. While the kernel's page cache has the same bytes and
    /// writes them, io_uring's direct I/O on ext4 fails with `EAGAIN`, again and again.
    fn is_refused_by(&self, why: &Error) -> bool {
        self.is_direct && matches!(why.raw_os_error(), Some(libc::EAGAIN | libc::EINVAL))
    }
}

/// A signal, or io_uring short of something for a moment.
fn is_worth_a_retry(why: &Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}
