//! Whether the program has put itself into a sandbox.
//!
//! A seccomp filter may end the process for a call that it does not allow, and cannot be asked. Two kinds of filters differ
//! in what they allow. One that was there when the program started is a container's or a service manager's, made for any
//! program: it allows sockets and files in memory, or refuses them with an error. One that the program set since is made
//! for that program alone, without Weir in mind: under such a filter Weir makes no call that is for
//! others' convenience only.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::os::seccomp;

/// A filter was in force at the start.
static FROM_START: AtomicBool = AtomicBool::new(false);

/// To be called once, before the program's own code runs.
pub(crate) fn note_start() {
    FROM_START.store(seccomp::is_filtered_at_start(), Relaxed);
}

/// Whether a filter is in force for the calling thread that was not there at the start.
pub(crate) fn is_programs_own() -> bool {
    !FROM_START.load(Relaxed) && seccomp::is_filtered()
}
