//! The program of this process: which it is, and another in its place.

use super::syscall::{Errno, Result, check, syscall3, syscall4};
use crate::arch::system_call;
use core::convert::Infallible;
use core::ffi::CStr;
use linux_raw_sys::general as sys;

/// The path of the program that the process runs.
pub fn program(buf: &mut [u8; 4096]) -> Result<&CStr> {
    let (path, room) = (c"/proc/self/exe".as_ptr() as usize, buf.len() - 1);
    let (nr, [a, b, c, d]) = system_call::readlink(path, buf.as_mut_ptr() as usize, room);
    // SAFETY: the kernel writes at most that many bytes of the buffer.
    let n = check(unsafe { syscall4(nr, a, b, c, d) })?;
    buf[n] = 0;
    CStr::from_bytes_until_nul(buf).map_err(|_| Errno::EINVAL)
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
