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

/// What `abort` raises.
const SIGABRT: u32 = 6;

/// Ends the process by `SIGABRT`, as libc's `abort` does. The program's handler runs, if there is one, and other signals come to
/// it as they did before. Where it returns, or the signal is ignored, the default action follows.
pub fn abort() -> ! {
    let _ = change_signal_mask(sys::SIG_UNBLOCK, set_of(SIGABRT));
    let _ = tgkill(getpid(), gettid(), SIGABRT);
    end_by(SIGABRT)
}

/// [`abort`] from a thread of Weir's own, where no handler of the program's can run. The signal goes to the process, for a
/// thread that has it open. If that does not end the process, this thread does, by the default action.
pub fn abort_elsewhere() -> ! {
    if kill(getpid() as i32, SIGABRT).is_ok() {
        let _ = futex_wait(&AtomicU32::new(0), 0, Some(1_000_000_000));
    }
    end_by(SIGABRT)
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
    change_signal_mask(sys::SIG_SETMASK, blocked)
}

/// Changes the thread's mask by a set, as `how` says; gives the old one.
fn change_signal_mask(how: u32, set: u64) -> Result<u64> {
    let mut old = 0u64;
    let (how, set, to) = (how as usize, &raw const set as usize, &raw mut old as usize);
    // SAFETY: both masks are of the 8 bytes that the call names.
    check(unsafe { syscall4(sys::__NR_rt_sigprocmask, how, set, to, size_of::<u64>()) })?;
    Ok(old)
}

/// A write to a pipe that has no reader. It ends a process, and so does [`SIGXFSZ`].
const SIGPIPE: u32 = 13;
/// A write to a terminal by a process in its background. It stops a process.
const SIGTTOU: u32 = 22;
/// A write beyond the limit of a file's size.
const SIGXFSZ: u32 = 25;

const fn set_of(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Runs `write`, which writes to files for Weir and not for the program: the program gets none of the signals that a write
/// raises. They are blocked meanwhile, and the one of a write that failed is taken back.
pub fn without_write_signals<T>(write: impl FnOnce() -> Result<T>) -> Result<T> {
    let raised = set_of(SIGPIPE) | set_of(SIGXFSZ);
    // The terminal takes the text of a thread that has its signal blocked, and raises none.
    let before = change_signal_mask(sys::SIG_BLOCK, raised | set_of(SIGTTOU));
    // What the program had not blocked cannot have been pending.
    let pending = before.map_or(0, |before| if before & raised != 0 { pending_signals() } else { 0 });
    let written = write();
    if let Ok(before) = before {
        let own = match &written {
            Err(Errno::EPIPE) => set_of(SIGPIPE),
            Err(Errno::EFBIG) => set_of(SIGXFSZ),
            _ => 0,
        };
        if own & !pending != 0 {
            take_pending(own);
        }
        let _ = set_signal_mask(before);
    }
    written
}

/// Signals that are blocked and pending, of the thread and of the process; none where the kernel does not say.
fn pending_signals() -> u64 {
    let mut set = 0u64;
    // SAFETY: the kernel fills a set of the 8 bytes that the call names.
    let _ = unsafe { syscall2(sys::__NR_rt_sigpending, &raw mut set as usize, size_of::<u64>()) };
    set
}

/// Takes one blocked and pending signal of the set, if there is one. The kernel gives the thread's own before the process's.
fn take_pending(set: u64) {
    let at_once = crate::os::clock::timespec(0);
    let (set, time) = (&raw const set as usize, &raw const at_once as usize);
    // SAFETY: the kernel reads a set of 8 bytes and a time, and is asked for no more than the signal's number.
    let _ = unsafe { syscall4(sys::__NR_rt_sigtimedwait, set, 0, time, size_of::<u64>()) };
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
    use crate::os::fd;
    use crate::os::process::{getpid, gettid};
    use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::os::fd::AsRawFd;

    #[test]
    fn the_mask_is_set_and_processes_are_found() {
        let old = set_signal_mask(1 << 9).unwrap();
        assert_eq!(set_signal_mask(old), Ok(1 << 9));
        assert!(exists(getpid() as i32));
    }

    /// A pipe without a reader: its writing end.
    fn closed_pipe() -> std::io::PipeWriter {
        std::io::pipe().unwrap().1
    }

    #[test]
    fn a_write_that_fails_leaves_no_signal() {
        let (pipe, of_pipe) = (closed_pipe(), set_of(SIGPIPE));
        let write = || without_write_signals(|| fd::write(pipe.as_raw_fd(), b"x"));
        // Rust has the signal ignored. Where it is blocked it becomes pending all the same.
        let before = set_signal_mask(0).unwrap();
        assert_eq!(write(), Err(Errno::EPIPE));
        assert_eq!(set_signal_mask(of_pipe), Ok(0), "the mask is as it was");
        assert_eq!((write(), pending_signals()), (Err(Errno::EPIPE), 0));
        tgkill(getpid(), gettid(), SIGPIPE).unwrap();
        assert_eq!((write(), pending_signals()), (Err(Errno::EPIPE), of_pipe), "what was pending before stays");
        take_pending(of_pipe);
        assert_eq!((pending_signals(), set_signal_mask(before)), (0, Ok(of_pipe)));
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
