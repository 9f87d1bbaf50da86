//! The threads of this process, as `/proc` lists them and as libc counts them, and where they run: CPUs, scheduling classes, the
//! NUMA node.

use crate::os::fd;
use crate::os::file::path::FixedPath;
use crate::os::file::text::{number, words};
use crate::os::process::{getpid, gettid};
use crate::os::symbol::{LibcSymbol, is_own_libc};
use crate::os::syscall::{Errno, Result, check, syscall0, syscall1, syscall3, syscall5};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use linux_raw_sys::general as sys;

/// A thread of this process. Its two numbers differ where `/proc` is of a PID namespace above this process's.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// By which system calls name it.
    pub id: u32,
    /// By which `/proc` names it.
    pub listed: u32,
}

/// The first thread that is not `own`, by its id, and has not ended; `None`: there is no such thread. An error: the kernel
/// does not say.
pub fn first_other(own: &dyn Fn(u32) -> bool) -> Result<Option<Thread>> {
    search_all(&|thread, is_foreign| {
        let id = if is_foreign { id_of(thread)? } else { Some(thread) };
        Ok(id.filter(|&id| !own(id) && !has_ended(thread)).map(|id| Thread { id, listed: thread }))
    })
}

/// The first thread that `is_wanted`, by the number in `/proc`, and has not ended.
pub fn first_listed(is_wanted: &dyn Fn(u32) -> bool) -> Result<Option<u32>> {
    let wanted = |thread| is_wanted(thread) && !has_ended(thread);
    let found = search_all(&|thread, _| Ok(wanted(thread).then_some(Thread { id: thread, listed: thread })));
    found.map(|thread| thread.map(|thread| thread.listed))
}

/// What `look` finds first, of the numbers in `/proc`, and whether they are of another PID namespace.
fn search_all(look: &Look<'_>) -> Result<Option<Thread>> {
    let directory = fd::open(c"/proc/self/task", fd::O_RDONLY | sys::O_DIRECTORY)?;
    let found = search(directory, look);
    let _ = fd::close(directory);
    found
}

type Look<'a> = dyn Fn(u32, bool) -> Result<Option<Thread>> + 'a;

/// The id of a thread in its own PID namespace, by the number in `/proc`; `None`: it is gone. Linux 4.1 and later say it.
fn id_of(thread: u32) -> Result<Option<u32>> {
    let mut buf = [0u8; 2048];
    let path = FixedPath::format(format_args!("/proc/self/task/{thread}/status")).ok_or(Errno::ENODATA)?;
    match fd::read_file(path.as_c_str(), &mut buf) {
        Ok(text) => innermost(text).map(Some).ok_or(Errno::ENODATA),
        Err(Errno::ENOENT | Errno::ESRCH) => Ok(None),
        Err(why) => Err(why),
    }
}

/// The last number in the line `NSpid:`. `None` where the line is not there in full.
fn innermost(text: &[u8]) -> Option<u32> {
    let (whole, _) = text.split_at(text.iter().rposition(|&byte| byte == b'\n')?);
    let line = whole.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"NSpid:"))?;
    words(line).last().and_then(number).and_then(|id| u32::try_from(id).ok())
}

/// The file with what [`main_threads_status`] reads.
pub const MAIN_THREADS_STAT: &CStr = c"/proc/self/stat";

/// How the main thread, which has ended, ended: as `wait` would say it of a process, by `exit(2)` or a signal. 0 where the
/// kernel does not say. `kept` is [`MAIN_THREADS_STAT`], or negative: it is opened now.
pub fn main_threads_status(kept: i32) -> i32 {
    let mut buf = [0u8; 1024];
    let text = if kept >= 0 {
        fd::pread(kept, &mut buf, 0).map(|len| &buf[..len])
    } else {
        fd::read_file(MAIN_THREADS_STAT, &mut buf)
    };
    text.ok().and_then(exit_status).unwrap_or(0)
}

/// The last field of `stat`.
fn exit_status(text: &[u8]) -> Option<i32> {
    number(words(text).last()?).and_then(|status| i32::try_from(status).ok())
}

fn search(directory: i32, look: &Look<'_>) -> Result<Option<Thread>> {
    let mut entries = Entries { bytes: [0; 1024] };
    // The kernel lists the main thread first.
    let mut main = None;
    loop {
        let (at, room) = (entries.bytes.as_mut_ptr() as usize, entries.bytes.len());
        // SAFETY: the kernel writes only inside the buffer.
        let len = check(unsafe { syscall3(sys::__NR_getdents64, directory as usize, at, room) })?;
        if len == 0 {
            // This thread at least is there.
            return if main.is_some() { Ok(None) } else { Err(Errno::ENODATA) };
        }
        let mut rest = &entries.bytes[..len];
        while let Some((thread, next)) = entry(rest) {
            if let Some(thread) = thread {
                let is_foreign = *main.get_or_insert(thread) != getpid();
                if let Some(found) = look(thread, is_foreign)? {
                    return Ok(Some(found));
                }
            }
            rest = next;
        }
    }
}

/// The buffer that the kernel fills.
#[repr(align(8))]
struct Entries {
    bytes: [u8; 1024],
}

/// The number that an entry of a directory is named by, and the entries after it.
fn entry(bytes: &[u8]) -> Option<(Option<u32>, &[u8])> {
    /// Places in `struct linux_dirent64`: its length, and where the name begins.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let length = usize::from(u16::from_ne_bytes([*bytes.get(LENGTH)?, *bytes.get(LENGTH + 1)?]));
    let name = bytes.get(NAME..length)?.split(|&byte| byte == 0).next()?;
    Some((number(name).and_then(|thread| u32::try_from(thread).ok()), bytes.get(length..)?))
}

/// Whether a thread, by its number in `/proc`, is not there, or only listed until its status is read.
pub fn has_ended(thread: u32) -> bool {
    let Some(path) = FixedPath::format(format_args!("/proc/self/task/{thread}/stat")) else { return false };
    is_of_an_ended(path.as_c_str())
}

/// Whether the main thread ended before others, or there is no `/proc`.
pub fn main_thread_has_ended() -> bool {
    is_of_an_ended(MAIN_THREADS_STAT)
}

/// Whether `/proc` says that the main thread ended before others.
pub fn main_thread_is_told_to_have_ended() -> bool {
    let mut buf = [0u8; 128];
    fd::read_file(MAIN_THREADS_STAT, &mut buf).is_ok_and(|text| matches!(state(text), Some(b'Z' | b'X')))
}

fn is_of_an_ended(stat: &CStr) -> bool {
    let mut buf = [0u8; 128];
    match fd::read_file(stat, &mut buf) {
        Ok(text) => matches!(state(text), Some(b'Z' | b'X')),
        Err(why) => matches!(why, Errno::ENOENT | Errno::ESRCH),
    }
}

/// glibc's variable since 2.32: not zero while the process has had one thread only.
static SINGLE_THREADED: LibcSymbol = LibcSymbol::new(c"__libc_single_threaded");

/// The program had `clone` make a thread, or a child with the same memory: libc knows nothing of it.
static SHARES_MEMORY: AtomicBool = AtomicBool::new(false);

/// Notes that the program has `clone` make what shares its memory.
pub(crate) fn shares_memory() {
    SHARES_MEMORY.store(true, Relaxed);
}

/// Whether the process has had no thread but one. Weir's own are not libc's. One that the program made by the bare system call
/// would not be noticed; glibc's malloc takes no locks beside such a thread either.
pub(crate) fn has_one_thread() -> bool {
    !SHARES_MEMORY.load(Relaxed) && is_one_to_libc()
}

/// Whether libc knows of one thread.
pub(crate) fn is_one_to_libc() -> bool {
    let variable = SINGLE_THREADED.address().filter(|_| is_own_libc());
    // SAFETY: libc's variable of this type.
    variable.is_some_and(|at| unsafe { (at as *const u8).read_volatile() } != 0)
}

/// Whether the main thread has given up the process's memory, which it does as it ends. No where the kernel does not say; there
/// need be no `/proc`.
pub fn main_thread_left_memory() -> bool {
    const KCMP_VM: usize = 1;
    shares_with_main_thread(KCMP_VM) == Some(false)
}

/// Whether the calling thread shares a resource of this kind (of `kcmp`'s) with the main thread. `None`: the kernel does not say.
pub fn shares_with_main_thread(kind: usize) -> Option<bool> {
    let (main, own) = (getpid() as usize, gettid() as usize);
    // SAFETY: touches no memory.
    check(unsafe { syscall5(sys::__NR_kcmp, main, own, kind, 0, 0) }).ok().map(|order| order == 0)
}

/// Whether a thread, by its number in `/proc`, is on its way out, or gone. The kernel has begun to end it then, and lists it with
/// its last state until that is done.
pub(crate) fn is_ending(thread: u32) -> bool {
    let mut buf = [0u8; 256];
    let Some(path) = FixedPath::format(format_args!("/proc/self/task/{thread}/stat")) else { return false };
    match fd::read_file(path.as_c_str(), &mut buf) {
        Ok(text) => flags(text).is_some_and(|flags| flags & PF_EXITING != 0),
        Err(why) => matches!(why, Errno::ENOENT | Errno::ESRCH),
    }
}

/// The kernel's flag of a task that ends (`include/linux/sched.h`).
const PF_EXITING: u64 = 4;

/// The flags in `NUMBER (NAME) STATE ...`: the ninth field.
fn flags(text: &[u8]) -> Option<u64> {
    const FROM_STATE: usize = 6;
    words(text.get(state_at(text)?..)?).nth(FROM_STATE).and_then(number)
}

/// Whether a thread of this process is in a `futex` call. No where the kernel does not say.
pub(crate) fn sleeps_in_futex(thread: u32) -> bool {
    let mut buf = [0u8; 64];
    let Some(path) = FixedPath::format(format_args!("/proc/self/task/{thread}/syscall")) else { return false };
    if let Ok(text) = fd::read_file(path.as_c_str(), &mut buf) {
        // The call's number comes first; a thread that is in none has a word there.
        return words(text).next().and_then(number) == Some(u64::from(sys::__NR_futex));
    }
    // That file is root's where the process may not be debugged, as after `setuid`. This one has a name for all: the kernel's
    // function that the thread sleeps in, or 0.
    let Some(path) = FixedPath::format(format_args!("/proc/self/task/{thread}/wchan")) else { return false };
    let of_futex = |function: &[u8]| [&b"futex_"[..], b"__futex_"].iter().any(|&start| function.starts_with(start));
    fd::read_file(path.as_c_str(), &mut buf).is_ok_and(of_futex)
}

/// The state in `NUMBER (NAME) STATE ...`.
fn state(text: &[u8]) -> Option<u8> {
    text.get(state_at(text)?).copied()
}

/// Where the state is; the name before it, of at most 15 bytes, may hold anything.
fn state_at(text: &[u8]) -> Option<usize> {
    let end = text.iter().take(64).rposition(|&byte| byte == b')')?;
    Some(end + 2)
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

/// Has a thread of this process run on the CPUs that the main thread may use. The thread runs in the main thread's
/// scheduling class, or in the default one if that is a real-time class. What is refused stays.
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

/// `sched_yield(2)`.
pub fn sched_yield() {
    // SAFETY: the call has no arguments.
    unsafe { syscall0(sys::__NR_sched_yield) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_listed_and_named_ones_passed_over() {
        let other = first_other(&|thread| thread == gettid()).unwrap().unwrap();
        assert_ne!(other.id, gettid());
        assert_eq!(id_of(other.listed), Ok(Some(other.id)));
        assert_eq!(id_of(u32::MAX >> 1), Ok(None));
        assert_eq!(first_listed(&|thread| thread == gettid()), Ok(Some(gettid())));
        assert!(!has_ended(getpid()) && !main_thread_has_ended() && !main_thread_is_told_to_have_ended());
        assert!(has_ended(u32::MAX >> 1));
        assert!(!is_ending(getpid()));
        assert!(is_ending(u32::MAX >> 1));
        assert!(!main_thread_left_memory());
    }

    #[test]
    fn the_id_of_a_thread_in_its_own_namespace() {
        assert_eq!(innermost(b"Name:\ta\nNSpid:\t4000\t17\t2\nNSsid:\t0\n"), Some(2));
        assert_eq!(innermost(b"NSpid:\t4000\n"), Some(4000));
        assert_eq!(innermost(b"Name:\ta\nNSpid:\t4000\t17"), None, "the line may go on");
        assert_eq!(innermost(b"Name:\ta\n"), None);
        assert_eq!(innermost(b""), None);
    }

    #[test]
    fn the_state_of_a_thread() {
        assert_eq!(state(b"12 (a) b)) Z 1 2"), Some(b'Z'));
        assert_eq!(state(b"12 (a"), None);
        assert_eq!(flags(b"12 (a b) R 1 2 3 4 5 4194308 6"), Some(0x40_0004));
        assert_eq!(flags(b"12 (a b) R 1 2 3 4 5"), None);
        assert_eq!(entry(b"short"), None);
        assert_eq!(exit_status(b"12 (a b) Z 1 2 768\n"), Some(3 << 8));
        assert_eq!(exit_status(b"12 (a b) Z 1 2 31\n"), Some(31));
        assert_eq!(exit_status(b""), None);
    }

    #[test]
    fn cpus_and_node_are_readable() {
        assert!(affinity_count().unwrap() >= 1);
        assert!(node() < 1024);
    }
}
