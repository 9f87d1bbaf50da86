//! Waking a thread that waits in `ppoll`, without a descriptor that the program could see, close or reuse.
//!
//! The usual way is an eventfd. But a program may close all descriptors it does not know and open others under
//! the same numbers; a waker that then writes its 8 bytes writes them into the program's file. So the background
//! thread keeps a descriptor table of its own ([`private_table`]) and is woken by a signal that it blocks and takes
//! from a signalfd. What is sent to it alone no other thread ever sees. But a signalfd also gives what was sent to the
//! whole process; that is the program's, and is put back.

use super::process::{getpid, set_signal_mask, tgkill};
use super::syscall::{Errno, Result, check, syscall1, syscall3, syscall4};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use linux_raw_sys::general as sys;

/// Ignored by default, so that one which went astray does no harm.
const SIGNAL: u32 = sys::SIGURG;
static MASK: u64 = 1 << (SIGNAL - 1);

/// Wakes one thread. Usable from any thread and from signal handlers.
#[derive(Debug, Default)]
pub struct Waker {
    /// The sleeper; 0 while there is none.
    tid: AtomicU32,
    /// 1 from a wake-up until the sleeper has seen it: further ones need no signal.
    pending: AtomicU32,
}

impl Waker {
    /// A waker that nobody listens to yet.
    pub const fn new() -> Self {
        Self { tid: AtomicU32::new(0), pending: AtomicU32::new(0) }
    }

    /// Wakes the sleeper, a thread of process `pid`, now or as soon as it sleeps. `false`: it is not there (any more).
    pub fn wake(&self, pid: u32) -> bool {
        if self.pending.swap(1, SeqCst) != 0 {
            return true;
        }
        let tid = self.tid.load(SeqCst);
        tid == 0 || tgkill(pid, tid, SIGNAL) != Err(Errno::ESRCH)
    }

    /// Takes the wake-up that came, if one did. What its sender wrote before is visible after.
    pub fn take(&self) -> bool {
        self.pending.swap(0, SeqCst) != 0
    }

    /// Whether the caller is the sleeper.
    pub fn is_sleeper(&self) -> bool {
        self.tid.load(SeqCst) == super::process::gettid()
    }

    /// In the child after `fork`: the sleeper is not there.
    pub fn forget(&self) {
        self.tid.store(0, SeqCst);
        self.pending.store(0, SeqCst);
    }

    /// Makes the calling thread the sleeper and blocks all its signals.
    pub fn attach(&self) -> Result<()> {
        set_signal_mask(u64::MAX)?;
        self.tid.store(super::process::gettid(), SeqCst);
        Ok(())
    }
}

/// A descriptor that becomes readable when the calling thread, which has attached itself, is woken.
pub(super) fn descriptor() -> Result<i32> {
    // SFD_CLOEXEC and SFD_NONBLOCK are by definition the flags of open.
    let flags = (sys::O_CLOEXEC | sys::O_NONBLOCK) as usize;
    // SAFETY: makes a new descriptor; the mask is 8 bytes.
    let fd = check(unsafe { syscall4(sys::__NR_signalfd4, usize::MAX, &raw const MASK as usize, 8, flags) })?;
    Ok(fd as i32)
}

/// Sleeps until a wake-up or the timeout, without any descriptor.
pub(super) fn sleep(timeout_ns: u64) {
    let spec = super::process::timespec(timeout_ns);
    let mut info = Info { signal: 0, errno: 0, code: 0, rest: [0; 29] };
    let (mask, info_at, spec) = (&raw const MASK as usize, &raw mut info as usize, &raw const spec as usize);
    // SAFETY: the mask is 8 bytes, the time valid for the call, and the kernel fills 128 bytes of details.
    let taken = check(unsafe { syscall4(sys::__NR_rt_sigtimedwait, mask, info_at, spec, 8) });
    // The sender is the first of the details after the head and a gap.
    if taken.is_ok() && info.code != SI_TKILL && info.rest[1] != 0 {
        put_back(&info);
        // So that the program, and not this thread again, takes it.
        let _ = super::fd::ppoll(&mut [], Some(timeout_ns.min(PUT_BACK_NS)));
    }
}

/// For how long a thread that put a signal back should not ask for signals.
pub(super) const PUT_BACK_NS: u64 = 100_000_000;
/// The code of a signal that was sent to one thread.
const SI_TKILL: i32 = -6;

/// What the kernel says of a signal: the head of `siginfo_t`, and of `signalfd_siginfo`.
#[repr(C)]
struct Info {
    signal: i32,
    errno: i32,
    code: i32,
    rest: [u32; 29],
}

/// Takes the signal from the descriptor; one below the real-time signals is pending at most once. `false`: it was the
/// program's, and is put back: the descriptor should be left alone for [`PUT_BACK_NS`].
pub(super) fn drain(fd: i32) -> bool {
    let mut bytes = [0u8; 128];
    if super::fd::read(fd, &mut bytes) != Ok(bytes.len()) {
        return true;
    }
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let mut info = Info { signal: word(0) as i32, errno: word(4) as i32, code: word(8) as i32, rest: [0; 29] };
    // At the limit of pending signals (RLIMIT_SIGPENDING) the kernel delivers one's own without saying who sent it.
    if info.code == SI_TKILL || word(12) == 0 {
        return true;
    }
    // Sender, its user and the value: at 12, 16 and 48 here, at 16, 20 and 24 of what the kernel takes.
    (info.rest[1], info.rest[2]) = (word(12), word(16));
    (info.rest[3], info.rest[4]) = (word(48), word(52));
    put_back(&info);
    false
}

/// Sends a signal to the whole process as it was sent before.
fn put_back(info: &Info) {
    let pid = getpid();
    // SAFETY: the kernel reads 128 bytes of details.
    let sent = check(unsafe {
        syscall3(sys::__NR_rt_sigqueueinfo, pid as usize, SIGNAL as usize, core::ptr::from_ref(info) as usize)
    });
    if sent.is_err() {
        let _ = super::process::kill(pid as i32, SIGNAL);
    }
}

const _: () = assert!(size_of::<Info>() == 128);

/// Gives the calling thread an empty descriptor table of its own. The program's descriptors stay as they are in
/// all other threads; this thread neither sees them nor keeps their files open.
///
/// To be called first thing on a thread that was started with the program's table. Without `close_range` (before
/// Linux 5.9, or refused by a sandbox) it goes the long way round; where `unshare` is refused too, it fails and
/// changes nothing.
pub fn private_table() -> Result<()> {
    const CLOSE_RANGE_UNSHARE: usize = 1 << 1;
    // SAFETY: the table is unshared first, so that only this thread's copies are closed.
    if check(unsafe { syscall3(sys::__NR_close_range, 0, u32::MAX as usize, CLOSE_RANGE_UNSHARE) }).is_ok() {
        return Ok(());
    }
    // SAFETY: unsharing the table touches no memory.
    check(unsafe { syscall1(sys::__NR_unshare, sys::CLONE_FILES as usize) })?;
    let (open_max, _) = super::process::getrlimit(super::process::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    for fd in 0..open_max.min(1 << 20) as i32 {
        if let Err(Errno::ENOSYS | Errno::EPERM) = super::fd::close(fd) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::fd::{POLLIN, PollFd, eventfd, fstat, ppoll};
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn each_wake_up_arrives_however_it_races() {
        const ROUNDS: usize = 2000;
        let (waker, asked) = (Arc::new(Waker::new()), Arc::new(AtomicUsize::new(0)));
        let (waker2, asked2) = (waker.clone(), asked.clone());
        let sleeper = std::thread::spawn(move || {
            waker2.attach().unwrap();
            let fd = descriptor().unwrap();
            let mut seen = 0;
            while seen < ROUNDS {
                let mut fds = [PollFd { fd, events: POLLIN, revents: 0 }];
                if !waker2.take() {
                    let events = ppoll(&mut fds, Some(10_000_000_000)).unwrap();
                    assert_eq!(events, 1, "a wake-up was lost after {seen}");
                    drain(fd);
                    waker2.take();
                }
                seen = asked2.load(SeqCst);
            }
        });
        for _ in 0..ROUNDS {
            asked.fetch_add(1, SeqCst);
            waker.wake(getpid());
            if asked.load(SeqCst) % 7 == 0 {
                std::thread::yield_now();
            }
        }
        sleeper.join().unwrap();
        waker.wake(getpid()); // nobody there: no harm
        waker.forget();
        assert!(!waker.take());
    }

    #[test]
    fn a_private_table_leaves_the_programs_files_alone() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let (in_fd, out_fd) = (reader.as_raw_fd(), writer.as_raw_fd());
        let (to_main, from_thread) = std::sync::mpsc::channel();
        let (to_thread, from_main) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            private_table().unwrap();
            assert_eq!(fstat(in_fd), Err(Errno::EBADF));
            // Numbers given out here mean nothing to the others.
            assert_eq!(eventfd(), Ok(0));
            to_main.send(()).unwrap();
            // Still here, with its table, while the other side looks at the pipe.
            let _ = from_main.recv();
            assert_eq!(fstat(out_fd), Err(Errno::EBADF));
        });
        from_thread.recv().unwrap();
        writer.write_all(b"x").unwrap();
        drop(writer);
        let mut all = std::vec::Vec::new();
        // The pipe ends: the thread keeps no copy of the writing end.
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"x");
        drop(to_thread);
        thread.join().unwrap();
    }
}
