//! `weir.h`: what a program can do with Weir beyond malloc. The header is the documentation; the two are kept
//! alike by a test that compiles it.

use crate::weir_h::structs::tell;
use core::ffi::c_int;
use weir::heap;

/// `struct weir_usage`.
pub type Usage = [usize; 9];

/// The library's version as text, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn weir_version() -> *const u8 {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr()
}

/// Everything idle is released now; 1 if anything was.
#[unsafe(no_mangle)]
pub extern "C" fn weir_trim() -> c_int {
    c_int::from(heap::trim())
}

/// 1 if the block had better be copied elsewhere.
#[unsafe(no_mangle)]
pub extern "C" fn weir_should_move(block: *const u8) -> c_int {
    c_int::from(heap::should_move(block))
}

/// Null where the block should stay; `errno` is left alone.
#[unsafe(no_mangle)]
pub extern "C" fn weir_alloc_to_move(block: *const u8) -> *mut u8 {
    heap::alloc_to_move(block)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_free_moved(block: *mut u8) {
    // SAFETY: the caller's promise is the same.
    unsafe { heap::free_moved(block) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_usage(out: *mut Usage, size: usize) -> c_int {
    let usage = heap::usage();
    let answer = [
        usage.live_bytes,
        usage.idle_bytes,
        usage.address_space_bytes,
        usage.mapped_bytes,
        usage.mapped_count,
        usage.metadata_bytes,
        usage.fragmented_bytes,
        usage.untouched_bytes,
        usage.merged_bytes,
    ];
    // SAFETY: the caller's promise: `size` bytes at `out` may be written.
    unsafe { tell(out, size, Some(answer)) }
}
