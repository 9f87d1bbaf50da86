//! Signals, the end of the process by one, and a process's handlers. These are set past libc: what is there is kept exactly as it
//! is, and libc's locks are not taken.

use crate::arch::signal;
use crate::os::futex::futex_wait;
use crate::os::process::{exit_group, getpid, gettid};
use crate::os::syscall::{Errno, Result, check, syscall2, syscall3, syscall4};
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

/// [`abort`] from a thread of Weir's own, where no handler of the program's can run. The signal goes to the process,
/// for a thread that has it open. If that does not end the process, this thread does.
pub fn abort_elsewhere() -> ! {
    const SIGABRT: u32 = 6;
    if kill(getpid() as i32, SIGABRT).is_ok() {
        let _ = futex_wait(&AtomicU32::new(0), 0, Some(1_000_000_000));
    }
    abort()
}

/// Ends the process as the signal does by default, whatever the program has set for it.
pub fn end_by(signal: u32) -> ! {
    // SAFETY: the default action calls no code of the process.
    let _ = unsafe { set_action(signal, &Action::NONE) };
    let _ = set_signal_mask(!1u64.checked_shl(signal - 1).unwrap_or(0));
    let _ = tgkill(getpid(), gettid(), signal);
    // Refused by a filter, or the first process of a PID namespace, which no signal of its own ends.
    let _ = kill(getpid() as i32, signal);
    exit_group(128 + signal as i32)
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

/// A wrong access to memory.
pub const SIGSEGV: u32 = 11;
/// An access to memory that a file or a device does not have.
pub const SIGBUS: u32 = 7;
/// The default action.
pub const DEFAULT: usize = 0;
/// The signal is ignored.
pub const IGNORE: usize = 1;
/// The handler runs on the thread's stack for signals, if it has one.
pub const ON_STACK: u64 = sys::SA_ONSTACK as u64;
/// The handler has three arguments.
pub const SIGINFO: u64 = sys::SA_SIGINFO as u64;
/// The handler is called once, and then the default action is set.
pub const RESET: u64 = sys::SA_RESETHAND as u64;

/// The kernel's `struct sigaction`: the same on x86-64 and arm64.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// The function, [`DEFAULT`] or [`IGNORE`].
    pub handler: usize,
    /// How it is called.
    pub flags: u64,
    /// Where it returns to.
    restorer: usize,
    /// Signals that are blocked meanwhile: bit `n - 1` is signal `n`.
    pub mask: u64,
}

impl Action {
    /// The default action, as it is at a process's start.
    pub const NONE: Self = Self { handler: DEFAULT, flags: 0, restorer: 0, mask: 0 };

    /// A handler of three arguments.
    pub fn new(handler: usize, flags: u64, mask: u64) -> Self {
        let (more, restorer) = signal::restorer();
        Self { handler, flags: flags | SIGINFO | more, restorer, mask }
    }
}

/// The action at a signal.
pub fn action(signal: u32) -> Result<Action> {
    let mut now = Action::default();
    // SAFETY: the kernel fills the structure, and changes nothing.
    check(unsafe { rt_sigaction(signal, 0, &raw mut now as usize) })?;
    Ok(now)
}

/// Sets what happens at a signal.
///
/// # Safety
/// The handler may be called at any instruction of any thread, and stays where it is.
pub unsafe fn set_action(signal: u32, new: &Action) -> Result<()> {
    // SAFETY: the structure is valid for the call; the caller answers for the handler.
    check(unsafe { rt_sigaction(signal, core::ptr::from_ref(new) as usize, 0) }).map(drop)
}

/// # Safety
/// Both are null, or structures of the kernel's, the first with a handler that may be called.
unsafe fn rt_sigaction(signal: u32, new: usize, old: usize) -> isize {
    // SAFETY: the caller's structures; masks are of 8 bytes.
    unsafe { syscall4(sys::__NR_rt_sigaction, signal as usize, new, old, size_of::<u64>()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::{getpid, gettid};
    use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

    #[test]
    fn the_mask_is_set_and_processes_are_found() {
        let old = set_signal_mask(1 << 9).unwrap();
        assert_eq!(set_signal_mask(old), Ok(1 << 9));
        assert!(exists(getpid() as i32));
    }

    static CALLS: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handler(signal: i32, _info: *mut u8, _context: *mut u8) {
        CALLS.fetch_add(signal as u32, SeqCst);
    }

    #[test]
    fn a_handler_is_called_and_returns() {
        const SIGURG: u32 = 23;
        let before = action(SIGURG).unwrap();
        let ours = Action::new(handler as *const () as usize, 0, 0);
        // SAFETY: the handler counts, which may be done at any time.
        unsafe { set_action(SIGURG, &ours) }.unwrap();
        assert_eq!(action(SIGURG).unwrap(), ours);
        tgkill(getpid(), gettid(), SIGURG).unwrap();
        assert_eq!(CALLS.load(SeqCst), SIGURG);
        // SAFETY: what was there before.
        unsafe { set_action(SIGURG, &before) }.unwrap();
        assert_eq!(action(SIGURG).unwrap().handler, before.handler);
    }
}
