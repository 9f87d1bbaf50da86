//! Seccomp filters: whether one is in force, and whether the program has put itself into a sandbox.
//!
//! A seccomp filter may end the process for a call that it does not allow, and what it allows cannot be read. Two kinds of
//! filters differ in that. Filters that were there when the program started are a container's or a service manager's, made for
//! any program. They allow sockets and files in memory, or refuse them with an error. A filter that the program set since, on top
//! of those, is made for that program alone, without Weir in mind. Under such a filter Weir makes no call that is for others'
//! convenience only. The kernel counts filters (from Linux 5.9 on; where it does not, all count as the program's).

use crate::os::fd;
use crate::os::file::text::number_after;
use crate::os::syscall::{Result, check, syscall1};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use linux_raw_sys::general as sys;

/// Whether a filter is in force for the calling thread; yes where the kernel does not say. Reads a file.
pub fn is_filtered() -> bool {
    let mut buf = [0u8; 4096];
    // A process with very many groups has the line behind what fits.
    let status = fd::read_file(c"/proc/thread-self/status", &mut buf);
    status.ok().and_then(|text| number_after(text, b"Seccomp:")) != Some(0)
}

/// Opens the file that says which filters are in force for the calling thread.
pub fn open_status() -> Result<i32> {
    fd::open(c"/proc/thread-self/status", fd::O_RDONLY)
}

/// Filters in force for the thread that opened the file: those of its start, and each that was set since. `None`: the
/// kernel does not say (before Linux 5.9 not how many).
pub fn filters(status: i32) -> Option<u32> {
    let mut buf = [0u8; 4096];
    let len = fd::pread(status, &mut buf, 0).ok()?;
    let status = buf.get(..len)?;
    match number_after(status, b"Seccomp_filters:") {
        Some(filters) => u32::try_from(filters).ok(),
        None => (number_after(status, b"Seccomp:") == Some(0)).then_some(0),
    }
}

/// Whether one is in force by one call, which a filter may not allow: for the start of a program. No where the kernel does not say.
pub fn is_filtered_at_start() -> bool {
    const PR_GET_SECCOMP: usize = 21;
    const FILTER: usize = 2;
    // SAFETY: touches no memory.
    check(unsafe { syscall1(sys::__NR_prctl, PR_GET_SECCOMP) }) == Ok(FILTER)
}

/// Filters that were in force at the start.
static AT_START: AtomicU32 = AtomicU32::new(0);

/// To be called once, before the program's own code runs.
pub(crate) fn note_start() {
    // A file is read only where there is a filter.
    if is_filtered_at_start() {
        let filters = Sandbox::look().ok().and_then(|it| filters(it.status));
        AT_START.store(filters.unwrap_or(0), Relaxed);
    }
}

/// The filters of the calling thread, by a file that stays open: it can be read again where no descriptor is free.
#[derive(Debug)]
pub(crate) struct Sandbox {
    status: i32,
}

impl Sandbox {
    /// An error: the file cannot be opened.
    pub fn look() -> Result<Self> {
        open_status().map(|status| Self { status })
    }

    /// Whether a filter is in force that was not there at the start, or may be.
    pub fn is_programs_own(&self) -> bool {
        filters(self.status).is_none_or(|filters| filters > AT_START.load(Relaxed))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = fd::close(self.status);
    }
}

#[cfg(test)]
mod tests {

    #[test]
    fn both_ways_say_the_same() {
        assert_eq!(super::is_filtered(), super::is_filtered_at_start());
        let status = super::open_status().unwrap();
        assert_eq!(super::filters(status).is_none_or(|filters| filters > 0), super::is_filtered());
        crate::os::fd::close(status).unwrap();
    }
}
