//! Signals, and the end of the process by one.

use super::futex::futex_wait;
use super::process::{exit_group, getpid, gettid};
use super::syscall::{Errno, Result, check, syscall2, syscall3, syscall4};
use core::sync::atomic::AtomicU32;
use linux_raw_sys::general as sys;

/// Sends a signal to a process; signal 0 only checks whether it is there.
pub fn kill(pid: i32, signal: u32) -> Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { syscall2(sys::__NR_kill, pid as isize as usize, signal as usize) }).map(drop)
}

/// Sends a signal to one thread.
pub fn tgkill(pid: u32, tid: u32, signal: u32) -> Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { syscall3(sys::__NR_tgkill, pid as usize, tid as usize, signal as usize) }).map(drop)
}

/// Ends the process by `SIGABRT`, for certain: a handler that returns, or a blocked signal, ends in `exit_group`.
pub fn abort() -> ! {
    const SIGABRT: u32 = 6;
    const SIGKILL: u32 = 9;
    let abort_only = !(1u64 << (SIGABRT - 1));
    let _ = set_signal_mask(abort_only);
    let _ = tgkill(getpid(), gettid(), SIGABRT);
    let _ = kill(getpid() as i32, SIGKILL);
    exit_group(134)
}

/// The same from a thread of Weir's own, where no handler of the program's can run: the signal goes to the process, for
/// a thread that has it open, and this one ends the process if that does not.
pub fn abort_elsewhere() -> ! {
    const SIGABRT: u32 = 6;
    if kill(getpid() as i32, SIGABRT).is_ok() {
        let _ = futex_wait(&AtomicU32::new(0), 0, Some(1_000_000_000));
    }
    abort()
}

/// Sets the thread's mask of blocked signals (bit `n - 1` is signal `n`); gives the old one.
pub fn set_signal_mask(blocked: u64) -> Result<u64> {
    let mut old = 0u64;
    let how = sys::SIG_SETMASK as usize;
    // SAFETY: both masks are of the 8 bytes that the call names.
    check(unsafe {
        syscall4(sys::__NR_rt_sigprocmask, how, &raw const blocked as usize, &raw mut old as usize, size_of::<u64>())
    })?;
    Ok(old)
}

/// Whether a process exists (whoever owns it).
pub fn exists(pid: i32) -> bool {
    !matches!(kill(pid, 0), Err(Errno::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_set_and_processes_are_found() {
        let old = set_signal_mask(1 << 9).unwrap();
        assert_eq!(set_signal_mask(old), Ok(1 << 9));
        assert!(exists(getpid() as i32));
    }
}
