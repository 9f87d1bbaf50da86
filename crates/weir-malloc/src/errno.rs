//! `errno`: set on failure, and only then.

use core::ffi::c_int;
use core::ptr::null_mut;

pub const EAGAIN: c_int = 11;
pub const EBUSY: c_int = 16;
pub const EINVAL: c_int = 22;
pub const ENOMEM: c_int = 12;
pub const ENOENT: c_int = 2;
pub const EFBIG: c_int = 27;
pub const ENOSPC: c_int = 28;
pub const EPERM: c_int = 1;
pub const ERANGE: c_int = 34;
#[cfg(not(target_feature = "crt-static"))]
pub const ENOSYS: c_int = 38;

// Linking libc by name gives the library its DT_NEEDED entry; a crate without `std` gets none by itself.
#[link(name = "c")]
unsafe extern "C" {
    /// Where this thread's `errno` is: the same name in glibc and in musl.
    safe fn __errno_location() -> *mut c_int;
}

/// Sets `errno` and returns the null pointer that goes with it. Out of the fast path's way.
#[cold]
#[inline(never)]
pub fn fail(code: c_int) -> *mut u8 {
    set(code);
    null_mut()
}

/// Sets `errno` and returns the -1 that goes with it.
#[cold]
pub fn refuse(code: c_int) -> c_int {
    set(code);
    -1
}

/// The calling thread's `errno`.
pub fn get() -> c_int {
    // SAFETY: where libc keeps this thread's, which it alone reads and writes.
    unsafe { __errno_location().read() }
}

/// Sets `errno`.
pub fn set(code: c_int) {
    // SAFETY: libc gives every thread a valid, writable `errno`.
    unsafe { *__errno_location() = code };
}

/// Passes a block through, or reports that there was no memory for it.
#[inline(always)]
pub fn or_enomem(block: *mut u8) -> *mut u8 {
    if block.is_null() { fail(ENOMEM) } else { block }
}
