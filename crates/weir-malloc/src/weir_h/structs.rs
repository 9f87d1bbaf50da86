//! Structures that a program and the library pass to each other. They grow at their ends, and either side may have the older one.

use crate::errno::{EINVAL, refuse};
use core::ffi::c_int;
use core::mem::size_of;

/// The caller's structure, with zeros for what it does not have.
///
/// # Safety
/// Null, or `size` readable bytes. Zeros are a value of the type, and so is what the caller has there.
pub unsafe fn read<T>(from: *const T, size: usize) -> T {
    // SAFETY: the caller's promise.
    let mut known = unsafe { core::mem::zeroed::<T>() };
    if !from.is_null() {
        let bytes = size.min(size_of::<T>());
        // SAFETY: the caller's bytes, as far as this side knows them.
        unsafe { (&raw mut known).cast::<u8>().copy_from_nonoverlapping(from.cast(), bytes) };
    }
    known
}

/// Fills as much of the caller's structure as it has, and zeros behind it. Returns 0; or -1 with EINVAL where there is no
/// answer, or no room for one.
///
/// # Safety
/// Null, or `size` bytes that may be written.
pub unsafe fn tell<T>(out: *mut T, size: usize, answer: Option<T>) -> c_int {
    let Some(answer) = answer.filter(|_| !out.is_null() && size > 0) else { return refuse(EINVAL) };
    let (out, known) = (out.cast::<u8>(), size.min(size_of::<T>()));
    // SAFETY: as the caller promises; `known` is no more than either side has.
    unsafe {
        out.copy_from_nonoverlapping((&raw const answer).cast(), known);
        out.add(known).write_bytes(0, size - known);
    }
    0
}
