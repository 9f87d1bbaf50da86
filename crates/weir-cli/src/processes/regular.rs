//! Opening files by names that are another process's, behind which may be anything. A file is opened for reading only once it is
//! known to be a regular one: an `open` of another may wait for ever (a FIFO), or do something (a device). Any call on a file may
//! wait for a server: a [`child`](super::child) makes it.

use super::child::ask;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat};
use std::fs::File;
use std::io::{Read, Result, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// What has this name, not opened yet.
pub fn find(path: &Path) -> Option<OwnedFd> {
    ask(|| rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())).ok()
}

/// Opens what was found for reading, if it is a regular file.
pub fn open(found: &OwnedFd) -> Option<Regular> {
    if FileType::from_raw_mode(ask(|| fstat(found)).ok()?.st_mode) != FileType::RegularFile {
        return None;
    }
    // Another process may hold a lease, for which an open would wait.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = ask(|| rustix::fs::open(format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty()));
    opened.ok().map(|file| Regular(file.into()))
}

/// Bytes of one read at most: the server of a file answers for so many in time.
const MOST_READ: usize = 1 << 20;

/// A regular file.
pub struct Regular(File);

impl Regular {
    /// What the file system says of it.
    pub fn stat(&self) -> Option<Stat> {
        ask(|| fstat(&self.0)).ok()
    }

    /// Bytes; 0 also where that is not known.
    pub fn length(&self) -> u64 {
        self.stat().map_or(0, |stat| stat.st_size as u64)
    }

    /// The file, for other calls than these.
    pub fn into_file(self) -> File {
        self.0
    }
}

impl Read for Regular {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let length = buffer.len().min(MOST_READ);
        ask(|| self.0.read(&mut buffer[..length]))
    }
}

impl Seek for Regular {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        match to {
            SeekFrom::End(_) => ask(|| self.0.seek(to)),
            // No file system is asked for that, and a table of symbols has a million of them.
            SeekFrom::Start(_) | SeekFrom::Current(_) => self.0.seek(to),
        }
    }
}
