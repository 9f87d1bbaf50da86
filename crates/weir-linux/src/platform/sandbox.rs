//! Whether the program has put itself into a sandbox.
//!
//! A seccomp filter may end the process for a call that it does not allow, and what it allows cannot be read. Two kinds of
//! filters differ in that. Those that were there when the program started are a container's or a service manager's, made
//! for any program: they allow sockets and files in memory, or refuse them with an error. One that the program set
//! since, on top of those, is made for that program alone, without Weir in mind: under such a filter Weir makes no call
//! that is for others' convenience only. The kernel counts filters (from Linux 5.9 on; where it does not, all count as the
//! program's).

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::os::{fd, seccomp};

/// Filters that were in force at the start.
static AT_START: AtomicU32 = AtomicU32::new(0);

/// To be called once, before the program's own code runs.
pub(crate) fn note_start() {
    // A file is read only where there is a filter.
    if seccomp::is_filtered_at_start() {
        let filters = Sandbox::look().and_then(|it| seccomp::filters(it.status));
        AT_START.store(filters.unwrap_or(0), Relaxed);
    }
}

/// The filters of the calling thread, by a file that stays open: it can be read again where no descriptor is free.
#[derive(Debug)]
pub(crate) struct Sandbox {
    status: i32,
}

impl Sandbox {
    /// `None`: the file cannot be opened.
    pub fn look() -> Option<Self> {
        seccomp::open_status().ok().map(|status| Self { status })
    }

    /// Whether a filter is in force that was not there at the start, or may be.
    pub fn is_programs_own(&self) -> bool {
        seccomp::filters(self.status).is_none_or(|filters| filters > AT_START.load(Relaxed))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = fd::close(self.status);
    }
}
