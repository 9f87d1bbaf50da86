//! C++ `operator new`, by its mangled names: ordinary and array, with and without an alignment, throwing and not.

use crate::cxx_throw::{weir_new_or_null, weir_new_or_throw};
use crate::fast_path::allocate;
use core::ffi::c_void;
use weir::heap;

/// What `operator new` without an alignment promises: `__STDCPP_DEFAULT_NEW_ALIGNMENT__`.
const DEFAULT_ALIGN: usize = 16;

// The calls of the slow paths stay the last act of each function, so that they become jumps: see `cxx_throw`.

#[cold]
extern "C" fn throwing_slow(size: usize) -> *mut u8 {
    let block = heap::alloc_slow(size);
    if block.is_null() { weir_new_or_throw(size, DEFAULT_ALIGN) } else { block }
}

#[cold]
extern "C" fn nothrow_slow(size: usize) -> *mut u8 {
    let block = heap::alloc_slow(size);
    if block.is_null() { weir_new_or_null(size, DEFAULT_ALIGN) } else { block }
}

#[inline(always)]
fn throwing_aligned(size: usize, align: usize) -> *mut u8 {
    let block = heap::alloc_aligned(align, size);
    if block.is_null() { weir_new_or_throw(size, align) } else { block }
}

#[inline(always)]
fn nothrow_aligned(size: usize, align: usize) -> *mut u8 {
    let block = heap::alloc_aligned(align, size);
    if block.is_null() { weir_new_or_null(size, align) } else { block }
}

/// `operator new(std::size_t)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _Znwm(size: usize) -> *mut u8 {
    allocate!(throwing_slow)
}

/// `operator new[](std::size_t)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _Znam(size: usize) -> *mut u8 {
    allocate!(throwing_slow)
}

/// `operator new(std::size_t, const std::nothrow_t&)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmRKSt9nothrow_t(size: usize, _tag: *const c_void) -> *mut u8 {
    allocate!(nothrow_slow)
}

/// `operator new[](std::size_t, const std::nothrow_t&)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamRKSt9nothrow_t(size: usize, _tag: *const c_void) -> *mut u8 {
    allocate!(nothrow_slow)
}

/// `operator new(std::size_t, std::align_val_t)`
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmSt11align_val_t(size: usize, align: usize) -> *mut u8 {
    throwing_aligned(size, align)
}

/// `operator new[](std::size_t, std::align_val_t)`
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamSt11align_val_t(size: usize, align: usize) -> *mut u8 {
    throwing_aligned(size, align)
}

/// `operator new(std::size_t, std::align_val_t, const std::nothrow_t&)`
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, _tag: *const c_void) -> *mut u8 {
    nothrow_aligned(size, align)
}

/// `operator new[](std::size_t, std::align_val_t, const std::nothrow_t&)`
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, _tag: *const c_void) -> *mut u8 {
    nothrow_aligned(size, align)
}
