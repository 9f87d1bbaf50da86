//! The process and the calling thread: ids, names and limits. The file also has what the kernel told the program at its start
//! (the auxiliary vector), and random numbers. The end of the process, and another program in its place, are here as well.

use crate::arch::system_call;
use crate::os::clock::monotonic_ns;
use crate::os::fd;
use crate::os::symbol::weak_symbol;
use crate::os::syscall::{Errno, Result, check, syscall0, syscall1, syscall2, syscall3, syscall4, syscall5};
use core::convert::Infallible;
use core::ffi::CStr;
use linux_raw_sys::general as sys;
use weir_core::base::units::PAGE;

pub use linux_raw_sys::general::{RLIMIT_CORE, RLIMIT_DATA, RLIMIT_NOFILE};

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

/// A descriptor for file `number` of a thread's table, for a thread with a table of its own. It shares position and flags
/// with the thread's. Of a thread that is not the main one: from Linux 6.9 on.
pub fn threads_file(thread: u32, number: i32) -> Result<i32> {
    let thread = if thread == getpid() { process_descriptor(thread) } else { thread_descriptor(thread) }?;
    // SAFETY: makes a descriptor, of the same file.
    let file = check(unsafe { syscall3(sys::__NR_pidfd_getfd, thread as usize, number as usize, 0) });
    let _ = fd::close(thread);
    file.map(|fd| fd as i32)
}

/// A descriptor that becomes readable when a process ends, whether anybody has waited for it or not. `ENOSYS` before Linux 5.3.
pub fn process_descriptor(process: u32) -> Result<i32> {
    // SAFETY: makes a descriptor.
    check(unsafe { syscall2(sys::__NR_pidfd_open, process as usize, 0) }).map(|fd| fd as i32)
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

weak_symbol!(getauxval = "getauxval" in libc: unsafe extern "C" fn(usize) -> usize);
weak_symbol!(
    /// Where the calling thread's `errno` is.
    errno_location = "__errno_location" in libc: extern "C" fn() -> *mut i32
);

/// A value of the auxiliary vector, 0 if there is none; `None`: libc lacks the function. The function sets `errno` for a value that
/// is not there. A program must not find it set when it begins, so it is put back.
pub fn auxiliary_from_libc(kind: usize) -> Option<usize> {
    let getauxval = getauxval()?;
    let errno = errno_location().map(|location| location());
    // SAFETY: a variable of the calling thread's.
    let before = errno.map(|errno| unsafe { errno.read() });
    // SAFETY: libc's function of this type; any argument is allowed.
    let value = unsafe { getauxval(kind) };
    if let (Some(errno), Some(before)) = (errno, before) {
        // SAFETY: as above.
        unsafe { errno.write(before) };
    }
    Some(value)
}

/// A value of the auxiliary vector, from libc or, where libc lacks the function, from the kernel.
pub fn auxiliary(kind: u32) -> Option<usize> {
    match auxiliary_from_libc(kind as usize) {
        Some(value) => Some(value),
        None => auxiliary_from_proc(kind.into()).and_then(|value| value.try_into().ok()),
    }
}

/// A value of the auxiliary vector, from `/proc/self/auxv`.
pub fn auxiliary_from_proc(kind: u64) -> Option<u64> {
    let mut buf = [0u8; 1024];
    find(fd::read_file(c"/proc/self/auxv", &mut buf).ok()?, kind)
}

fn find(vector: &[u8], kind: u64) -> Option<u64> {
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
    vector.chunks_exact(16).find(|pair| word(&pair[..8]) == Some(kind)).and_then(|pair| word(&pair[8..]))
}

/// The path of the program that the process runs.
pub fn program(buf: &mut [u8; 4096]) -> Result<&CStr> {
    let (path, room) = (c"/proc/self/exe".as_ptr() as usize, buf.len() - 1);
    let (nr, [a, b, c, d]) = system_call::readlink(path, buf.as_mut_ptr() as usize, room);
    // SAFETY: the kernel writes at most that many bytes of the buffer.
    let n = check(unsafe { syscall4(nr, a, b, c, d) })?;
    buf[n] = 0;
    CStr::from_bytes_until_nul(buf).map_err(|_| Errno::EINVAL)
}

/// Whether the process's real user may execute the file at a path.
pub fn is_executable(path: &CStr) -> bool {
    const X_OK: usize = 1;
    let (dir, path) = (sys::AT_FDCWD as isize as usize, path.as_ptr() as usize);
    // SAFETY: the path is a C string; no memory of ours changes.
    check(unsafe { syscall3(sys::__NR_faccessat, dir, path, X_OK) }).is_ok()
}

/// Runs `path` in place of this program; returns only if that failed.
///
/// # Safety
/// `argv` and `envp` are null-terminated arrays of C strings.
pub unsafe fn execute(path: &CStr, argv: *const *const u8, envp: *const *const u8) -> Result<Infallible> {
    // SAFETY: `path` is a C string and both arrays are the caller's, null-terminated; the kernel copies them.
    let ret = unsafe { syscall3(sys::__NR_execve, path.as_ptr() as usize, argv as usize, envp as usize) };
    match check(ret) {
        Err(error) => Err(error),
        Ok(_) => Err(Errno::EINVAL),
    }
}

/// Two numbers from the kernel's generator, which nobody can guess. An error: it is refused, or has none yet, early in boot.
pub fn secret_words() -> Result<[usize; 2]> {
    const GRND_NONBLOCK: usize = 1;
    let mut numbers = [0usize; 2];
    let (place, bytes) = (numbers.as_mut_ptr() as usize, size_of_val(&numbers));
    // SAFETY: it writes as many bytes of `numbers` as it has.
    let written = check(unsafe { syscall3(sys::__NR_getrandom, place, bytes, GRND_NONBLOCK) })?;
    if written == bytes { Ok(numbers) } else { Err(Errno::EAGAIN) }
}

/// Two random numbers: secret ones or, where there are none, from the clock and the stack's random place.
pub fn random_words() -> [usize; 2] {
    secret_words().unwrap_or_else(|_| {
        let here = 0u8;
        spread(monotonic_ns() as usize ^ (&raw const here as usize) << 20)
    })
}

/// Halves of a product spread what little there is (the factor is 2^64 over the golden ratio).
fn spread(seed: usize) -> [usize; 2] {
    let product = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [product, product.rotate_left(32)]
}

/// Two random numbers for the places of mappings. Where chance in addresses is switched off (`setarch -R`, gdb), they are the same
/// in each run, and others for each copy of this code that a process has: two heaps at one place would be none. Then the
/// stack, where the program's name lies, ends right below a power of two. That it does so by chance is one in 2^20.
pub fn chance() -> [usize; 2] {
    const NEAR: usize = 3 << 12;
    let name = auxiliary(linux_raw_sys::auxvec::AT_EXECFN).filter(|&name| name > 0);
    let is_off = name.is_some_and(|name| name.next_power_of_two() - name < NEAR);
    // The page, as copies of one file lie at whole pages.
    if is_off { spread(chance as *const () as usize / PAGE) } else { random_words() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn ids_are_libcs_and_limits_are_readable() {
        assert_eq!(getpid(), std::process::id());
        assert_ne!(std::thread::spawn(gettid).join().unwrap(), gettid());
        let (soft, hard) = getrlimit(RLIMIT_NOFILE).unwrap();
        assert!(soft <= hard);
    }

    #[test]
    fn both_ways_give_the_same() {
        let kind = linux_raw_sys::auxvec::AT_PAGESZ;
        assert_eq!((auxiliary(kind), auxiliary_from_proc(kind.into())), (Some(PAGE), Some(PAGE as u64)));
    }

    #[test]
    fn a_value_that_is_not_there_leaves_errno() {
        let errno = errno_location().unwrap()();
        // SAFETY: this thread's own.
        unsafe { errno.write(7) };
        assert_eq!(auxiliary_from_libc(1 << 20), Some(0));
        // SAFETY: as above.
        assert_eq!(unsafe { errno.read() }, 7);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text: Vec<u8>) {
            let _ = find(&text, 6);
        }
    }
}
