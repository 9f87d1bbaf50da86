//! Opening files by names that are another process's, behind which may be anything. A file is opened for reading only once it is
//! known to be a regular one: an `open` of another may wait for ever (a FIFO), or do something (a device).

use rustix::fs::{FileType, Mode, OFlags, fstat};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// What has this name, not opened yet.
pub fn find(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Opens what was found for reading, if it is a regular file.
pub fn open(found: &OwnedFd) -> Option<File> {
    if FileType::from_raw_mode(fstat(found).ok()?.st_mode) != FileType::RegularFile {
        return None;
    }
    // Another process may hold a lease, for which an open would wait.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty()).ok().map(File::from)
}
