//! Processes, threads, time and fences: futex, membarrier, clock, limits, signals.

use super::syscall::{Errno, Result, check, syscall0, syscall1, syscall2, syscall3, syscall4, syscall5};
use core::sync::atomic::AtomicU32;
use linux_raw_sys::general as sys;

pub use linux_raw_sys::general::{RLIMIT_AS, RLIMIT_CORE, RLIMIT_DATA, RLIMIT_NOFILE};

/// A number that fits the kernel's `timespec`.
pub(super) fn timespec(ns: u64) -> sys::__kernel_timespec {
    sys::__kernel_timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// Process id. Asked afresh each time: a cached one is wrong after `fork`.
pub fn getpid() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { syscall0(sys::__NR_getpid) as u32 }
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

/// Nanoseconds of `CLOCK_MONOTONIC`, by system call: libc's vDSO is out of reach here.
pub fn monotonic_ns() -> u64 {
    let mut now = sys::__kernel_timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills one timespec; this clock always exists.
    unsafe { syscall2(sys::__NR_clock_gettime, sys::CLOCK_MONOTONIC as usize, &raw mut now as usize) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps while `*word == expected`, at most `timeout_ns`. `Ok` for a wake-up, which may be spurious;
/// `EAGAIN` if the word differed, `ETIMEDOUT`, or `EINTR`.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) -> Result<()> {
    let spec = timeout_ns.map(timespec);
    let spec_at = spec.as_ref().map_or(0, |s| core::ptr::from_ref(s) as usize);
    let op = (sys::FUTEX_WAIT | sys::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the word and the time are valid for the call.
    check(unsafe { syscall4(sys::__NR_futex, word.as_ptr() as usize, op, expected as usize, spec_at) }).map(drop)
}

/// The same for a word that the kernel itself clears as a thread ends, which wakes sleepers of the shared kind.
pub fn futex_wait_shared(word: &AtomicU32, expected: u32, timeout_ns: u64) -> Result<()> {
    let spec = timespec(timeout_ns);
    let op = sys::FUTEX_WAIT as usize;
    // SAFETY: the word and the time are valid for the call.
    check(unsafe { syscall4(sys::__NR_futex, word.as_ptr() as usize, op, expected as usize, &raw const spec as usize) })
        .map(drop)
}

/// Sleeps while a word of this process's is `expected` and another, which the kernel itself clears, is `alive`.
/// `ENOSYS` before Linux 5.16.
pub fn futex_wait_two(word: &AtomicU32, expected: u32, other: (usize, u32), timeout_ns: Option<u64>) -> Result<()> {
    /// Words of 32 bits.
    const SIZE_U32: u64 = 2;
    let words = [
        [u64::from(expected), word.as_ptr() as u64, SIZE_U32 | u64::from(sys::FUTEX_PRIVATE_FLAG)],
        [u64::from(other.1), other.0 as u64, SIZE_U32],
    ];
    let spec = timeout_ns.map(|timeout| timespec(monotonic_ns().saturating_add(timeout).min(i64::MAX as u64)));
    let spec_at = spec.as_ref().map_or(0, |s| core::ptr::from_ref(s) as usize);
    let (at, clock) = (words.as_ptr() as usize, sys::CLOCK_MONOTONIC as usize);
    // SAFETY: the kernel reads two descriptions and the time, and the words that they name, if they are there.
    check(unsafe { syscall5(sys::__NR_futex_waitv, at, words.len(), 0, spec_at, clock) }).map(drop)
}

/// Where libc keeps the main thread's number, which the kernel sets to 0, waking who sleeps on it, when that thread
/// ends: glibc keeps it two words before the list head that it registers for robust mutexes. `None`: it is not there.
pub fn main_threads_word() -> Option<usize> {
    const BEFORE_LIST: usize = 16;
    let (mut head, mut len, main) = (0usize, 0usize, getpid());
    let (head_at, len_at) = (&raw mut head as usize, &raw mut len as usize);
    // SAFETY: the kernel fills two words.
    check(unsafe { syscall3(sys::__NR_get_robust_list, main as usize, head_at, len_at) }).ok()?;
    let word =
        head.checked_sub(BEFORE_LIST).filter(|word| head != 0 && word.is_multiple_of(align_of::<AtomicU32>()))?;
    // Whatever libc it is, and wherever its list lies: asked of the kernel, as the address may lead nowhere.
    let found = futex_wait_two(&AtomicU32::new(0), 0, (word, main), Some(0));
    matches!(found, Err(Errno::ETIMEDOUT)).then_some(word)
}

/// Wakes at most `count` sleepers of a word; gives how many.
pub fn futex_wake(word: &AtomicU32, count: u32) -> Result<usize> {
    let op = (sys::FUTEX_WAKE | sys::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: a wake-up reads nothing but the address.
    check(unsafe { syscall3(sys::__NR_futex, word.as_ptr() as usize, op, count.min(i32::MAX as u32) as usize) })
}

/// Commands of [`membarrier`].
pub mod membarrier_cmd {
    /// Asks which commands there are; the answer is a bit mask of the others.
    pub const QUERY: u32 = 0;
    /// A fence on all running threads of the process.
    pub const PRIVATE_EXPEDITED: u32 = 1 << 3;
    /// Registers the process for [`PRIVATE_EXPEDITED`].
    pub const REGISTER_PRIVATE_EXPEDITED: u32 = 1 << 4;
    /// The same, and restarts the restartable sequences they are in.
    pub const PRIVATE_EXPEDITED_RSEQ: u32 = 1 << 7;
    /// Registers the process for [`PRIVATE_EXPEDITED_RSEQ`].
    pub const REGISTER_PRIVATE_EXPEDITED_RSEQ: u32 = 1 << 8;
    /// Flag: fence only the CPU named.
    pub const FLAG_CPU: u32 = 1;
}

/// `membarrier(2)`; `cpu` counts only with [`membarrier_cmd::FLAG_CPU`].
pub fn membarrier(cmd: u32, flags: u32, cpu: u32) -> Result<u32> {
    // SAFETY: a fence touches no memory.
    check(unsafe { syscall3(sys::__NR_membarrier, cmd as usize, flags as usize, cpu as usize) }).map(|mask| mask as u32)
}

/// Soft and hard limit of a resource; `u64::MAX` is "none".
pub fn getrlimit(resource: u32) -> Result<(u64, u64)> {
    let mut limit = [0u64; 2];
    // SAFETY: pid 0 is this process; the kernel fills one rlimit64, two words.
    check(unsafe { syscall4(sys::__NR_prlimit64, 0, resource as usize, 0, limit.as_mut_ptr() as usize) })?;
    Ok((limit[0], limit[1]))
}

/// Sets the bits of `mask` that the calling thread may run on; how many words of it the kernel filled.
pub fn affinity(mask: &mut [u64]) -> Result<usize> {
    // SAFETY: the kernel fills at most the bytes named.
    let bytes =
        check(unsafe { syscall3(sys::__NR_sched_getaffinity, 0, size_of_val(mask), mask.as_mut_ptr() as usize) })?;
    Ok(bytes / 8)
}

/// Number of CPUs that the calling thread may run on.
pub fn affinity_count() -> Result<usize> {
    let mut mask = [0u64; 128];
    let words = affinity(&mut mask)?;
    Ok(mask[..words].iter().map(|word| word.count_ones() as usize).sum())
}

/// Has a thread of this process run in the main thread's scheduling class, or in the default one if that is a real-time
/// class, on the CPUs that the main thread may use. What is refused stays.
pub fn unbind(thread: u32) {
    let (mut cpus, priority) = ([0u64; 128], 0i32);
    let main = getpid() as usize;
    // SAFETY: the kernel reads one number, and fills and reads at most the bytes named.
    unsafe {
        let class = check(syscall1(sys::__NR_sched_getscheduler, main)).map(|class| class as u32 & !RESET_ON_FORK);
        let class = class.ok().filter(|class| !REAL_TIME.contains(class)).unwrap_or(sys::SCHED_NORMAL);
        syscall3(sys::__NR_sched_setscheduler, thread as usize, class as usize, &raw const priority as usize);
        let bytes = syscall3(sys::__NR_sched_getaffinity, main, size_of_val(&cpus), cpus.as_mut_ptr() as usize);
        if let Ok(bytes) = check(bytes) {
            syscall3(sys::__NR_sched_setaffinity, thread as usize, bytes, cpus.as_ptr() as usize);
        }
    }
}

/// A flag in the answer of `sched_getscheduler`.
const RESET_ON_FORK: u32 = 0x4000_0000;
/// Classes with a claim to the CPU that the background thread has not.
const REAL_TIME: [u32; 3] = [sys::SCHED_FIFO, sys::SCHED_RR, sys::SCHED_DEADLINE];

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

/// `sched_yield(2)`.
pub fn sched_yield() {
    // SAFETY: the call has no arguments.
    unsafe { syscall0(sys::__NR_sched_yield) };
}

/// Sends a signal to a process; signal 0 only asks whether it is there.
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

/// The same from a thread of Weir's own, where no handler of the program's can run: the signal goes to the process, for a
/// thread that has it open, and this one ends the process if that does not.
pub fn abort_elsewhere() -> ! {
    const SIGABRT: u32 = 6;
    if kill(getpid() as i32, SIGABRT).is_ok() {
        let _ = super::fd::ppoll(&mut [], Some(1_000_000_000));
    }
    abort()
}

/// Sets the thread's mask of blocked signals (bit `n - 1` is signal `n`); gives the old one.
pub fn set_signal_mask(blocked: u64) -> Result<u64> {
    let mut old = 0u64;
    let how = sys::SIG_SETMASK as usize;
    // SAFETY: both masks are the 8 bytes that the kernel is told of.
    check(unsafe {
        syscall4(sys::__NR_rt_sigprocmask, how, &raw const blocked as usize, &raw mut old as usize, size_of::<u64>())
    })?;
    Ok(old)
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

/// Lets the calling thread run on these CPUs alone, a bit for each.
pub fn set_affinity(cpus: &[u64]) -> Result<()> {
    // SAFETY: the kernel reads as many bytes as are named.
    check(unsafe { syscall3(sys::__NR_sched_setaffinity, 0, size_of_val(cpus), cpus.as_ptr() as usize) }).map(drop)
}

/// The calling thread's NUMA node at the moment; 0 where the kernel does not say.
pub fn node() -> usize {
    let mut node = 0u32;
    // SAFETY: the kernel writes the node's number there, and nothing elsewhere.
    let asked = check(unsafe { syscall3(sys::__NR_getcpu, 0, &raw mut node as usize, 0) });
    if asked.is_ok() { node as usize } else { 0 }
}

/// Name of the calling thread, at most 15 bytes.
pub fn set_thread_name(name: &core::ffi::CStr) -> Result<()> {
    const PR_SET_NAME: usize = 15;
    // SAFETY: the kernel copies at most 16 bytes of the C string, up to its end.
    check(unsafe { syscall2(sys::__NR_prctl, PR_SET_NAME, name.as_ptr() as usize) }).map(drop)
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

/// Whether a process exists (whoever owns it).
pub fn exists(pid: i32) -> bool {
    !matches!(kill(pid, 0), Err(Errno::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::SeqCst;

    #[test]
    fn time_moves_on_and_ids_are_libcs() {
        let before = monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(monotonic_ns() - before >= 2_000_000);
        assert_eq!(getpid(), std::process::id());
        assert_ne!(std::thread::spawn(gettid).join().unwrap(), gettid());
        assert!(exists(getpid() as i32));
    }

    #[test]
    fn a_futex_waits_and_wakes() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        assert_eq!(futex_wait(&WORD, 1, None), Err(Errno::EAGAIN));
        assert_eq!(futex_wait(&WORD, 0, Some(1_000_000)), Err(Errno::ETIMEDOUT));
        let sleeper = std::thread::spawn(|| {
            while WORD.load(SeqCst) == 0 {
                let _ = futex_wait(&WORD, 0, None);
            }
        });
        WORD.store(1, SeqCst);
        futex_wake(&WORD, 1).unwrap();
        sleeper.join().unwrap();
    }

    #[test]
    fn limits_and_cpus_are_readable() {
        let (soft, hard) = getrlimit(RLIMIT_NOFILE).unwrap();
        assert!(soft <= hard);
        assert!(affinity_count().unwrap() >= 1);
        assert!(node() < 1024);
        assert!(membarrier(membarrier_cmd::QUERY, 0, 0).is_ok());
        let old = set_signal_mask(1 << 9).unwrap();
        assert_eq!(set_signal_mask(old), Ok(1 << 9));
    }
}
