//! Whether the program has put itself into a sandbox.
//!
//! A seccomp filter may end the process for a call that it does not allow, and what it allows cannot be read. Two kinds of
//! filters differ in that. Those that were there when the program started are a container's or a service manager's, made
//! for any program: they allow sockets and files in memory, or refuse them with an error. One that the program set
//! since, on top of those, is made for that program alone, without Weir in mind: under such a filter Weir makes no call
//! that is for others' convenience only. The kernel counts filters (from Linux 5.9 on; where it does not, all count as the
//! program's).

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::os::seccomp;

/// Filters that were in force at the start.
static AT_START: AtomicU32 = AtomicU32::new(0);

/// To be called once, before the program's own code runs.
pub(crate) fn note_start() {
    // A file is read only where there is a filter.
    if seccomp::is_filtered_at_start() {
        AT_START.store(seccomp::filters().unwrap_or(0), Relaxed);
    }
}

/// Whether a filter is in force for the calling thread that was not there at the start.
pub(crate) fn is_programs_own() -> bool {
    seccomp::filters().is_none_or(|filters| filters > AT_START.load(Relaxed))
}
