//! An operation on a file: what is done, and by which call or entry of a ring.

use crate::buffers::Buffer;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use rustix::io::{pread, pwrite, retry_on_intr};
use std::io::{Error, Result};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// The operation on a file.
pub(super) enum What {
    /// Appends at most `length` bytes from `offset` on to the buffer.
    Read {
        length: usize,
        offset: u64,
    },
    /// Writes a part of the buffer.
    Write {
        part: Range<usize>,
        offset: u64,
    },
    Sync,
    Allocate {
        mode: FallocateFlags,
        range: Range<u64>,
    },
}

/// An operation, with all that it uses.
pub(super) struct Operation {
    pub(super) file: Arc<OwnedFd>,
    pub(super) buffer: Buffer,
    pub(super) what: What,
}

impl Operation {
    /// Performs it by a system call.
    pub(super) fn perform(&mut self) -> Result<usize> {
        let (file, buffer) = (&self.file, &mut self.buffer);
        let done = match &self.what {
            What::Read { length, offset } => {
                let read =
                    retry_on_intr(|| pread(file, &mut buffer.spare()[..*length], *offset).map(|read| read.0.len()));
                // SAFETY: the kernel has written so much to the spare room.
                read.inspect(|read| unsafe { buffer.advance(*read) })
            }
            What::Write { part, offset } => retry_on_intr(|| pwrite(file, &buffer.filled()[part.clone()], *offset)),
            What::Sync => retry_on_intr(|| fdatasync(file)).map(|()| 0),
            What::Allocate { mode, range } => {
                retry_on_intr(|| fallocate(file, *mode, range.start, range.end - range.start)).map(|()| 0)
            }
        };
        done.map_err(Error::from)
    }

    /// Entry of a ring that performs it. It names memory of the buffer, which keeps its address while this moves.
    pub(super) fn entry(&mut self) -> squeue::Entry {
        let file = Fd(self.file.as_raw_fd());
        match &self.what {
            What::Read { length, offset } => {
                let into = self.buffer.spare().as_mut_ptr().cast();
                opcode::Read::new(file, into, *length as u32).offset(*offset).build()
            }
            What::Write { part, offset } => {
                let from = &self.buffer.filled()[part.clone()];
                opcode::Write::new(file, from.as_ptr(), from.len() as u32).offset(*offset).build()
            }
            What::Sync => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
            What::Allocate { mode, range } => {
                let length = range.end - range.start;
                opcode::Fallocate::new(file, length).offset(range.start).mode(mode.bits() as i32).build()
            }
        }
    }

    /// The ring has performed it.
    pub(super) fn performed(&mut self, result: i32) -> Result<usize> {
        let done = usize::try_from(result).map_err(|_| Error::from_raw_os_error(-result))?;
        if let What::Read { .. } = self.what {
            // SAFETY: the kernel has written so much to the spare room that the entry has named.
            unsafe { self.buffer.advance(done) };
        }
        Ok(done)
    }
}
