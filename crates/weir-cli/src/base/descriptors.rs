//! How many files a process may have open.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// What is said where no further file can be opened.
pub const TOO_MANY: &str = "too many files are open here: raise `ulimit -n`";

/// Whether it is the number of open files, this process's or all of the machine's, that lets it open no further one.
pub fn is_too_many(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
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
