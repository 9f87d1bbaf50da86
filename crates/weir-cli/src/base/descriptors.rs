//! How many files a process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process have as many files open as it may: usual limits let a process raise its own from 1,024. Who looks
/// at all processes has one open for each with Weir, and who steers them two.
pub fn use_all_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Where it is refused, there are as many as before.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}
