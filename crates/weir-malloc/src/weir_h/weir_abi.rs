//! `weir.h`: what a program can do with Weir beyond malloc. The header is the documentation; the two are kept
//! alike by a test that compiles it.

use crate::errno::{EINVAL, refuse};
use core::ffi::c_int;
use core::mem::size_of;
use weir::heap;

/// `struct weir_usage`.
#[repr(C)]
pub struct Usage {
    live_bytes: usize,
    idle_bytes: usize,
    address_space_bytes: usize,
    mapped_bytes: usize,
    mapped_count: usize,
    metadata_bytes: usize,
    fragmented_bytes: usize,
    untouched_bytes: usize,
    merged_bytes: usize,
}

/// `weir_version`: the library's version as text, such as "0.1.0".
pub fn version() -> *const u8 {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr()
}

/// `weir_trim`: everything idle is released now; 1 if anything was.
pub fn trim() -> c_int {
    c_int::from(heap::trim())
}

/// `weir_should_move`: 1 if the block had better be copied elsewhere.
pub fn should_move(block: *const u8) -> c_int {
    c_int::from(heap::should_move(block))
}

/// `weir_alloc_to_move`: null where the block should stay; `errno` is left alone.
pub fn alloc_to_move(block: *const u8) -> *mut u8 {
    heap::alloc_to_move(block)
}

/// `weir_free_moved`.
pub unsafe fn free_moved(block: *mut u8) {
    // SAFETY: the caller's promise is the same.
    unsafe { heap::free_moved(block) }
}

/// `weir_usage`: fills as much of the caller's structure as it has, so that the structure can grow at its end.
pub unsafe fn usage(out: *mut Usage, size: usize) -> c_int {
    if out.is_null() || size == 0 {
        return refuse(EINVAL);
    }
    let usage = heap::usage();
    let answer = Usage {
        live_bytes: usage.live_bytes,
        idle_bytes: usage.idle_bytes,
        address_space_bytes: usage.address_space_bytes,
        mapped_bytes: usage.mapped_bytes,
        mapped_count: usage.mapped_count,
        metadata_bytes: usage.metadata_bytes,
        fragmented_bytes: usage.fragmented_bytes,
        untouched_bytes: usage.untouched_bytes,
        merged_bytes: usage.merged_bytes,
    };
    // SAFETY: the caller's promise: `size` bytes at `out` may be written.
    unsafe { fill(out.cast(), size, &answer) };
    0
}

/// Copies as much of `answer` as fits into `size` bytes at `out`, and zeros behind it.
///
/// # Safety
/// `size` bytes at `out` may be written.
pub unsafe fn fill<T>(out: *mut u8, size: usize, answer: &T) {
    let known = size.min(size_of::<T>());
    // SAFETY: as the caller promises; `known` is no more than either side has.
    unsafe {
        out.copy_from_nonoverlapping(core::ptr::from_ref(answer).cast(), known);
        out.add(known).write_bytes(0, size - known);
    }
}
