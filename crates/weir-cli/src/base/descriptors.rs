//! How many files a process may have open.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::OwnedFd;

/// What is said where no further file can be opened.
pub const TOO_MANY: &str = "too many files are open here: raise `ulimit -n`";

/// Whether it is the number of open files, this process's or all of the machine's, that lets it open no further one.
pub fn is_too_many(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether this process may open so many more files at the same time. It opens them: no other way tells.
pub fn may_open(count: usize) -> bool {
    let any = || open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let opened: rustix::io::Result<Vec<OwnedFd>> = (0..count).map(|_| any()).collect();
    !opened.is_err_and(|error| is_too_many(&error.into()))
}

/// Lets this process have as many files open as it may: usual limits let a process raise its own from 1,024. Who
/// steers processes has two open for each.
pub fn use_all_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Where it is refused, there are as many as before.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}
