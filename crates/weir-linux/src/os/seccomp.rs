//! Seccomp filters: whether one is in force. What one allows cannot be read.

use super::fd;
use super::syscall::{Result, check, syscall1};
use super::text::number_after;
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

#[cfg(test)]
mod tests {
    #[test]
    fn both_ways_say_the_same() {
        assert_eq!(super::is_filtered(), super::is_filtered_at_start());
        let status = super::open_status().unwrap();
        assert_eq!(super::filters(status).is_none_or(|filters| filters > 0), super::is_filtered());
        super::fd::close(status).unwrap();
    }
}
