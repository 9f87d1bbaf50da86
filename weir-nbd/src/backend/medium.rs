//! The bytes of a file, as they are read and written: past the kernel's page cache where the server has a cache of its
//! own and the range allows it, else through it.

use crate::buffers::Buffer;
use crate::io::{Inline, Reactor};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// What direct I/O needs of offsets, lengths and addresses at most, bytes.
pub const ALIGNMENT: u64 = 4096;

/// An open file.
pub struct Medium {
    pub(super) file: Arc<OwnedFd>,
    /// The same file, opened for direct I/O.
    pub(super) direct: Option<Arc<OwnedFd>>,
    pub(super) inline: Inline,
}

impl Medium {
    /// The descriptor for an operation.
    fn choose(&self, offset: u64, length: usize, address: *const u8) -> (&Arc<OwnedFd>, Inline) {
        let is_aligned = [offset, length as u64, address as u64].iter().all(|number| number.is_multiple_of(ALIGNMENT));
        match &self.direct {
            Some(direct) if is_aligned && length > 0 => (direct, Inline::Never),
            _ => (&self.file, self.inline),
        }
    }

    /// The bytes of a range; or the error, and the offset at which it happened.
    pub async fn read(&self, reactor: &Rc<Reactor>, range: Range<u64>) -> std::result::Result<Buffer, (Error, u64)> {
        let length = (range.end - range.start) as usize;
        let mut buffer = Buffer::take(length).map_err(|why| (why, range.start))?;
        while buffer.filled().len() < length {
            let done = buffer.filled().len();
            let at = range.start + done as u64;
            let (file, inline) = self.choose(at, length - done, buffer.spare().0);
            let (read, returned) = reactor.read_at(file, buffer, length - done, at, inline).await;
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

    /// Writes a part of `buffer` at `offset`.
    pub async fn write(
        &self,
        reactor: &Rc<Reactor>,
        offset: u64,
        mut buffer: Buffer,
        part: Range<usize>,
    ) -> Result<Buffer> {
        let mut done = part.start;
        while done < part.end {
            let at = offset + (done - part.start) as u64;
            let (file, inline) = self.choose(at, part.end - done, &buffer.filled()[done]);
            let (written, returned) = reactor.write_at(file, buffer, done..part.end, at, inline).await;
            buffer = returned;
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(why) if is_worth_a_retry(&why) => {}
                written => done += written?,
            }
        }
        Ok(buffer)
    }
}

/// A signal, or io_uring short of something for a moment.
fn is_worth_a_retry(why: &Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}
