//! Sleeping on a word and waking who sleeps there, and fences on all threads.

use crate::os::clock::{monotonic_ns, timespec};
use crate::os::process::getpid;
use crate::os::syscall::{Errno, Result, check, syscall1, syscall3, syscall4, syscall5, syscall6};
use crate::os::tasks::sched_yield;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use linux_raw_sys::general as sys;

/// Sleeps while `*word == expected`, at most `timeout_ns`. `Ok` for a wake-up, which may be spurious;
/// `EAGAIN` if the word differed, `ETIMEDOUT`, or `EINTR`.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) -> Result<()> {
    let spec = timeout_ns.map(timespec);
    let spec_at = spec.as_ref().map_or(0, |s| core::ptr::from_ref(s) as usize);
    let op = (sys::FUTEX_WAIT | sys::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the word and the time are valid for the call.
    check(unsafe { syscall4(sys::__NR_futex, word.as_ptr() as usize, op, expected as usize, spec_at) }).map(drop)
}

/// Lets other threads run, between two looks at what one of them is to do. First it lets those run that wait for this
/// CPU, and from the 20th round on all, for 200 us. A thread of a real-time class would otherwise keep its CPU from the
/// one it waits for.
pub fn pause(round: u32) {
    const YIELDS: u32 = 20;
    const SLEEP_NS: u64 = 200_000;
    if round < YIELDS {
        sched_yield();
    } else {
        let _ = futex_wait(&AtomicU32::new(0), 0, Some(SLEEP_NS));
    }
}

/// [`futex_wait`] for a word that the kernel itself clears as a thread ends, which wakes sleepers of the shared kind.
pub fn futex_wait_shared(word: &AtomicU32, expected: u32, timeout_ns: u64) -> Result<()> {
    let spec = timespec(timeout_ns);
    let op = sys::FUTEX_WAIT as usize;
    // SAFETY: the word and the time are valid for the call.
    check(unsafe { syscall4(sys::__NR_futex, word.as_ptr() as usize, op, expected as usize, &raw const spec as usize) })
        .map(drop)
}

/// Sleeps while a word of this process's is `expected` and another, which the kernel itself clears, is `alive`.
/// `ENOSYS` before Linux 5.16, and where there is no clock: this call wants the end of the sleep, not how long it is.
pub fn futex_wait_two(word: &AtomicU32, expected: u32, other: (usize, u32), timeout_ns: Option<u64>) -> Result<()> {
    /// Words of 32 bits.
    const SIZE_U32: u64 = 2;
    let words = [
        [u64::from(expected), word.as_ptr() as u64, SIZE_U32 | u64::from(sys::FUTEX_PRIVATE_FLAG)],
        [u64::from(other.1), other.0 as u64, SIZE_U32],
    ];
    let end = match timeout_ns.map(|timeout| (monotonic_ns(), timeout)) {
        Some((0, _)) => return Err(Errno::ENOSYS),
        sleep => sleep.map(|(now, timeout)| now.saturating_add(timeout)),
    };
    let spec = end.map(|end| timespec(end.min(i64::MAX as u64)));
    let spec_at = spec.as_ref().map_or(0, |s| core::ptr::from_ref(s) as usize);
    let (at, clock) = (words.as_ptr() as usize, sys::CLOCK_MONOTONIC as usize);
    // SAFETY: the kernel reads two descriptions and the time, and the words that they name, if they are there.
    check(unsafe { syscall5(sys::__NR_futex_waitv, at, words.len(), 0, spec_at, clock) }).map(drop)
}

/// The main thread's number in a process that libc's `clone` made. libc has no word there which the kernel clears.
static NUMBER_IN_COPY: AtomicU32 = AtomicU32::new(0);

/// By the only thread of such a process, to which the program gave no word either: its end is to be heard.
pub fn report_end_in_copy() {
    NUMBER_IN_COPY.store(getpid(), Relaxed);
    // SAFETY: the kernel writes the word, which stays, as this thread ends.
    unsafe { syscall1(sys::__NR_set_tid_address, NUMBER_IN_COPY.as_ptr() as usize) };
}

/// Address where glibc has the number of a thread: two words before the list head that is registered for robust mutexes. Another
/// libc has something else there, or nothing. `None`: there is no such list.
pub(crate) fn word_before_list(thread: u32) -> Option<usize> {
    const BEFORE_LIST: usize = 16;
    let (mut head, mut len) = (0usize, 0usize);
    let (head_at, len_at) = (&raw mut head as usize, &raw mut len as usize);
    // SAFETY: the kernel fills two words.
    check(unsafe { syscall3(sys::__NR_get_robust_list, thread as usize, head_at, len_at) }).ok()?;
    head.checked_sub(BEFORE_LIST).filter(|word| head != 0 && word.is_multiple_of(align_of::<AtomicU32>()))
}

/// Address of the word with the main thread's number in libc. When that thread ends, the kernel sets it to 0, and wakes
/// the thread that sleeps on it. `None`: it is not there.
pub fn main_threads_word() -> Option<usize> {
    if NUMBER_IN_COPY.load(Relaxed) == getpid() {
        return Some(NUMBER_IN_COPY.as_ptr() as usize);
    }
    let main = getpid();
    let word = word_before_list(main)?;
    // Whatever libc it is, and wherever its list lies: checked by the kernel, as the address may lead nowhere.
    let found = futex_wait_two(&AtomicU32::new(0), 0, (word, main), Some(0));
    matches!(found, Err(Errno::ETIMEDOUT)).then_some(word)
}

/// Wakes at most `count` sleepers of a word; gives how many.
pub fn futex_wake(word: &AtomicU32, count: u32) -> Result<usize> {
    futex_wake_at(word, count)
}

/// [`futex_wake`] for a word that may be gone by now: only its address is used.
pub fn futex_wake_at(word: *const AtomicU32, count: u32) -> Result<usize> {
    let op = (sys::FUTEX_WAKE | sys::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: a wake-up reads nothing but the address.
    check(unsafe { syscall3(sys::__NR_futex, word as usize, op, count.min(i32::MAX as u32) as usize) })
}

/// Whether the word at an address, which must be aligned to 4, can be read. The kernel reads it for a comparison, and
/// moves none of its sleepers, whatever comes of that. Any page may be asked of; a page that is not resident becomes
/// so.
pub fn is_readable(at: usize) -> bool {
    let op = (sys::FUTEX_CMP_REQUEUE | sys::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: no sleeper is woken and none is moved; the kernel reads the word, and says EFAULT where it cannot.
    let answer = check(unsafe { syscall6(sys::__NR_futex, at, op, 0, 0, at, 0) });
    matches!(answer, Ok(_) | Err(Errno::EAGAIN))
}

/// Commands of [`membarrier`].
pub mod command {
    /// Asks which commands there are; the answer is a bit mask of the others.
    pub const QUERY: u32 = 0;
    /// A fence on all running threads of the process, which restarts the restartable sequences that they are in.
    pub const PRIVATE_EXPEDITED_RSEQ: u32 = 1 << 7;
    /// Registers the process for [`PRIVATE_EXPEDITED_RSEQ`].
    pub const REGISTER_PRIVATE_EXPEDITED_RSEQ: u32 = 1 << 8;
    /// Flag: fence only the CPU named.
    pub const FLAG_CPU: u32 = 1;
}

/// `membarrier(2)`; `cpu` counts only with [`command::FLAG_CPU`].
pub fn membarrier(cmd: u32, flags: u32, cpu: u32) -> Result<u32> {
    // SAFETY: a fence touches no memory.
    check(unsafe { syscall3(sys::__NR_membarrier, cmd as usize, flags as usize, cpu as usize) }).map(|mask| mask as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::SeqCst;

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
    fn the_commands_can_be_asked_for() {
        assert!(membarrier(command::QUERY, 0, 0).is_ok());
    }
}
