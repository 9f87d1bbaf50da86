//! ISO C, POSIX and the aligned forms: every function that may return or take back a block.
//!
//! Failure returns null and sets `errno`; success and every form of `free` leave `errno` alone. What the standards
//! leave open is answered as glibc answers it, for that is what programs were tested with. Here are the rules;
//! `names` exports them.

use crate::errno::{EINVAL, ENOMEM, fail, or_enomem};
use crate::first;
use crate::misuse::{WrongCall, misuse};
use crate::weir_h::cache_abi::is_object;
use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use core::mem::size_of;
use core::ptr::null_mut;
use weir::heap;
use weir_linux::os::page;
use weir_linux::process::malloc;

/// musl answers some calls in another way than glibc.
const IS_MUSL: bool = cfg!(target_env = "musl");

/// `malloc` within another function. Of no bytes: a block of its own.
#[inline(always)]
fn malloc(size: usize) -> *mut u8 {
    or_enomem(malloc::counted_alloc(size))
}

/// `malloc`, when its fast path failed.
#[cold]
pub extern "C" fn malloc_slow(size: usize) -> *mut u8 {
    first::malloc_is_called();
    or_enomem(malloc::counted_alloc_slow(size))
}

/// `free`, when its fast path failed. Null is allowed; `errno` is kept (the heap makes raw system calls, which never
/// touch it).
#[cold]
pub unsafe extern "C" fn free_slow(block: *mut u8) {
    // SAFETY: the caller's promise, checked by the heap: null, or a live block of it.
    unsafe { heap::free(block) }
}

/// `calloc`. The product is checked; the whole usable size is zero.
#[inline(always)]
pub fn calloc(count: usize, size: usize) -> *mut u8 {
    match count.checked_mul(size) {
        Some(total) => or_enomem(malloc::counted_alloc_zeroed(total)),
        None => fail(ENOMEM),
    }
}

/// `realloc`. Of null: `malloc`. To no bytes: as glibc does, `free`, and null; where libc is musl, a block of its own, as there.
#[inline(always)]
pub unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    if malloc::stays(block, size) {
        return block;
    }
    // SAFETY: the caller's promise is the same.
    unsafe { resize(block, size) }
}

/// `realloc` of what does not stay as it is.
#[cold]
#[inline(never)]
unsafe fn resize(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        return malloc(size);
    }
    if is_object(block) {
        misuse(WrongCall::Resized, block.addr());
        return fail(EINVAL);
    }
    if size == 0 && !IS_MUSL {
        // SAFETY: not null, and the caller's promise: a live block.
        unsafe { heap::free(block) };
        return null_mut();
    }
    // SAFETY: not null, size not zero, and the caller's promise: a live block. On failure the heap left it alone.
    or_enomem(unsafe { malloc::counted_realloc(block, size.max(1)) })
}

/// The type of `realloc`.
pub type Realloc = unsafe extern "C" fn(*mut u8, usize) -> *mut u8;

/// `reallocarray` (POSIX.1-2024): `realloc` of a product, which is checked. As in glibc it is the first `realloc` of the process:
/// `realloc`. A program may have the functions of ISO C by itself, or from a checker, and lack this one.
#[inline(always)]
pub unsafe fn reallocarray(block: *mut u8, count: usize, size: usize, realloc: Realloc) -> *mut u8 {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise is `realloc`'s.
        Some(total) => unsafe { realloc(block, total) },
        None => fail(ENOMEM),
    }
}

/// `aligned_alloc` (C17): any power of two, and the size need not be a multiple of it. glibc refuses the rest since
/// 2.38.
#[cold]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut u8 {
    if !align.is_power_of_two() {
        return fail(EINVAL);
    }
    or_enomem(aligned(align, size))
}

/// A block whose alignment is a power of two; null when memory is refused, as it is for more than half of all addresses.
fn aligned(align: usize, size: usize) -> *mut u8 {
    Layout::from_size_align(size, align).map_or(null_mut(), malloc::counted_alloc_aligned)
}

/// `memalign`: as `aligned_alloc`, but glibc rounds an odd alignment up to the next power of two. musl takes 0 alone.
#[cold]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut u8 {
    match align.checked_next_power_of_two() {
        Some(power) if IS_MUSL && power != align.max(1) => fail(EINVAL),
        Some(align) => or_enomem(aligned(align, size)),
        None => fail(EINVAL),
    }
}

/// `posix_memalign`: returns the error and, on failure, leaves `*out` alone. `errno` is set where there is no memory, as glibc's
/// is (the standard leaves it open, and programs print it). A wrong alignment leaves it alone, there and here.
#[cold]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut u8, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        return EINVAL;
    }
    // SAFETY: the caller's promise: `out` may be written.
    unsafe { answer_in(out, aligned(align, size)) }
}

/// `posix_memalign`, when its fast path failed. All objects of the size's class are aligned as was asked for.
#[cold]
pub unsafe extern "C" fn posix_memalign_slow(size: usize, out: *mut *mut u8) -> c_int {
    // SAFETY: the caller's promise: `out` may be written.
    unsafe { answer_in(out, malloc::counted_alloc_slow(size)) }
}

/// Stores `block` in `out`, unless it is null; the error.
unsafe fn answer_in(out: *mut *mut u8, block: *mut u8) -> c_int {
    if or_enomem(block).is_null() {
        return ENOMEM;
    }
    // SAFETY: the caller's promise: `out` may be written.
    unsafe { *out = block };
    0
}

/// `valloc`: a block at the start of a page.
#[inline(always)]
pub fn valloc(size: usize) -> *mut u8 {
    or_enomem(aligned(page::bytes(), size))
}

/// `pvalloc`: whole pages; of no bytes, one page.
#[inline(always)]
pub fn pvalloc(size: usize) -> *mut u8 {
    match size.max(1).checked_next_multiple_of(page::bytes()) {
        Some(size) => or_enomem(aligned(page::bytes(), size)),
        None => fail(ENOMEM),
    }
}

/// `malloc_usable_size`: what of the block may be written. Of null: nothing.
#[inline(always)]
pub unsafe fn malloc_usable_size(block: *mut u8) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: not null, and the caller's promise: a live block.
    unsafe { heap::usable_size(block) }
}
