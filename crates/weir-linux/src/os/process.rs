//! The process and the calling thread: ids, names, limits, their end.

use super::syscall::{Result, check, syscall0, syscall1, syscall2, syscall3, syscall4, syscall5};
use linux_raw_sys::general as sys;

pub use linux_raw_sys::general::{RLIMIT_AS, RLIMIT_CORE, RLIMIT_DATA, RLIMIT_NOFILE};

/// Process id, by a system call each time: a cached one is wrong after `fork`.
pub fn getpid() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { syscall0(sys::__NR_getpid) as u32 }
}

/// The parent's process id; 0 where it is in another namespace.
pub fn getppid() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { syscall0(sys::__NR_getppid) as u32 }
}

/// Effective user id of the calling thread.
pub fn geteuid() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { syscall0(sys::__NR_geteuid) as u32 }
}

/// Thread id.
pub fn gettid() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { syscall0(sys::__NR_gettid) as u32 }
}

/// Soft and hard limit of a resource; `u64::MAX` is "none".
pub fn getrlimit(resource: u32) -> Result<(u64, u64)> {
    let mut limit = [0u64; 2];
    // SAFETY: pid 0 is this process; the kernel fills one rlimit64, two words.
    check(unsafe { syscall4(sys::__NR_prlimit64, 0, resource as usize, 0, limit.as_mut_ptr() as usize) })?;
    Ok((limit[0], limit[1]))
}

/// A descriptor for file `number` of the main thread's table, for a thread with a table of its own.
pub fn main_threads_file(number: i32) -> Result<i32> {
    // SAFETY: makes a descriptor of this process.
    let process = check(unsafe { syscall2(sys::__NR_pidfd_open, getpid() as usize, 0) })?;
    // SAFETY: makes another, of the same file.
    let file = check(unsafe { syscall3(sys::__NR_pidfd_getfd, process, number as usize, 0) });
    let _ = super::fd::close(process as i32);
    file.map(|fd| fd as i32)
}

/// A descriptor that becomes readable when a thread ends. `EINVAL` before Linux 6.9.
pub fn thread_descriptor(thread: u32) -> Result<i32> {
    const PIDFD_THREAD: u32 = sys::O_EXCL;
    // SAFETY: makes a descriptor of this process.
    check(unsafe { syscall2(sys::__NR_pidfd_open, thread as usize, PIDFD_THREAD as usize) }).map(|fd| fd as i32)
}

/// Ends the calling thread only, with no destructors.
pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: the thread ends here; its stack belongs to whoever started it.
        unsafe { syscall1(sys::__NR_exit, status as usize) };
    }
}

/// Ends the process, with no destructors.
pub fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: the process ends here.
        unsafe { syscall1(sys::__NR_exit_group, status as usize) };
    }
}

/// Name of the calling thread, at most 15 bytes.
pub fn set_thread_name(name: &core::ffi::CStr) -> Result<()> {
    const PR_SET_NAME: usize = 15;
    // SAFETY: the kernel copies at most 16 bytes of the C string, up to its end.
    check(unsafe { syscall2(sys::__NR_prctl, PR_SET_NAME, name.as_ptr() as usize) }).map(drop)
}

/// Whether the process has switched transparent huge pages off for itself (`PR_SET_THP_DISABLE`), where they were asked for
/// or not. Since Linux 6.18 it may switch off those alone that were not asked for.
pub fn has_no_huge_pages(were_asked_for: bool) -> bool {
    const PR_GET_THP_DISABLE: usize = 42;
    const DISABLED: usize = 1;
    const BUT_ADVISED: usize = 3;
    // SAFETY: touches no memory.
    match check(unsafe { syscall5(sys::__NR_prctl, PR_GET_THP_DISABLE, 0, 0, 0, 0) }) {
        Ok(mode) => mode == DISABLED || (mode == BUT_ADVISED && !were_asked_for),
        Err(_) => false,
    }
}

/// Whether this process may dump core and be debugged by its own user.
pub fn dumpable() -> bool {
    const PR_GET_DUMPABLE: usize = 3;
    // SAFETY: touches no memory.
    check(unsafe { syscall1(sys::__NR_prctl, PR_GET_DUMPABLE) }) == Ok(1)
}

/// Allows that.
pub fn set_dumpable() -> Result<()> {
    const PR_SET_DUMPABLE: usize = 4;
    // SAFETY: touches no memory.
    check(unsafe { syscall2(sys::__NR_prctl, PR_SET_DUMPABLE, 1) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_libcs_and_limits_are_readable() {
        assert_eq!(getpid(), std::process::id());
        assert_ne!(std::thread::spawn(gettid).join().unwrap(), gettid());
        let (soft, hard) = getrlimit(RLIMIT_NOFILE).unwrap();
        assert!(soft <= hard);
    }
}
