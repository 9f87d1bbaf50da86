//! C++ `operator new`, by its mangled names: ordinary and array, with and without an alignment, throwing and not.
//!
//! A program may replace any of the forms, and the standard says which form each other one then calls. A program that
//! defines `operator new(std::size_t)` and `operator delete(void*)` has all unaligned ones go through its two. So only
//! these two and their aligned twins allocate and free. The derived forms jump through the global offset table, which
//! the loader filled with the first definition in the process: the program's, or this one. One jump costs less than a
//! look.
//!
//! A nothrow form has to catch what the program's form throws, but must not throw where the form is ours. There may be
//! no C++ runtime to throw with, or one out of the loader's sight. So it looks whether the table names ours. A program
//! at a fixed address that takes an operator's address puts a stub of its own there. The stub is taken for an operator
//! that replaces ours: ours then throws, and is caught.

use crate::arch::fast_path::{allocate, allocate_aligned};
use crate::arch::jump::{jump, jump_by_table, unless_ours};
use crate::cxx::alloc_aligned;
use crate::cxx::throw::{weir_call_or_null, weir_new_or_null, weir_new_or_throw};
use crate::first;
use core::ffi::c_void;
use weir_linux::process::malloc;

/// The alignment that `operator new` promises by itself: `__STDCPP_DEFAULT_NEW_ALIGNMENT__`.
const DEFAULT_ALIGN: usize = 16;

// The calls of the slow paths stay the last act of each function, so that they become jumps: see `cxx::throw`.

/// What the fast path did not allocate. Null when memory is refused.
fn alloc_slow(size: usize) -> *mut u8 {
    if first::is_anothers() { alloc_aligned(size, DEFAULT_ALIGN) } else { malloc::counted_alloc_slow(size) }
}

#[cold]
extern "C" fn throwing_slow(size: usize) -> *mut u8 {
    let block = alloc_slow(size);
    if block.is_null() { weir_new_or_throw(size, DEFAULT_ALIGN) } else { block }
}

#[cold]
extern "C" fn nothrow_slow(size: usize) -> *mut u8 {
    let block = alloc_slow(size);
    if block.is_null() { weir_new_or_null(size, DEFAULT_ALIGN) } else { block }
}

extern "C" fn throwing_aligned(size: usize, align: usize) -> *mut u8 {
    let block = alloc_aligned(size, align);
    if block.is_null() { weir_new_or_throw(size, align) } else { block }
}

extern "C" fn nothrow_aligned(size: usize, align: usize) -> *mut u8 {
    let block = alloc_aligned(size, align);
    if block.is_null() { weir_new_or_null(size, align) } else { block }
}

unsafe extern "C" {
    // Second names of functions here, where `ours` puts them.
    fn weir_ours_new_nothrow();
    fn weir_ours_new_aligned_nothrow();
}

/// Within a function: a second name for its beginning, which means this one, also where another library has the first
/// name.
macro_rules! ours {
    ($name:literal) => {
        concat!(".globl ", $name, "\n.hidden ", $name, "\n", $name, ":")
    };
}

/// `operator new(std::size_t)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _Znwm(size: usize) -> *mut u8 {
    allocate!(throwing_slow, [ours!("weir_ours_new")])
}

/// `operator new[](std::size_t)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _Znam(size: usize) -> *mut u8 {
    jump_by_table!(_Znwm, [ours!("weir_ours_new_array")])
}

/// `operator new(std::size_t, const std::nothrow_t&)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmRKSt9nothrow_t(size: usize, _tag: *const c_void) -> *mut u8 {
    allocate!(
        nothrow_slow,
        [ours!("weir_ours_new_nothrow"), unless_ours!("_Znwm", "weir_ours_new")],
        call_or_null = sym weir_call_or_null
    )
}

/// `operator new[](std::size_t, const std::nothrow_t&)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamRKSt9nothrow_t(size: usize, _tag: *const c_void) -> *mut u8 {
    // The array form is ours, and goes on to the plain one, as the plain nothrow form does.
    jump!(weir_ours_new_nothrow, [unless_ours!("_Znam", "weir_ours_new_array")], call_or_null = sym weir_call_or_null)
}

/// `operator new(std::size_t, std::align_val_t)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmSt11align_val_t(size: usize, align: usize) -> *mut u8 {
    // Its own form without an alignment, not by name: the standard has no such call.
    allocate_aligned!(size, align, throwing_aligned, "weir_ours_new", [ours!("weir_ours_new_aligned")])
}

/// `operator new[](std::size_t, std::align_val_t)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamSt11align_val_t(size: usize, align: usize) -> *mut u8 {
    jump_by_table!(_ZnwmSt11align_val_t, [ours!("weir_ours_new_array_aligned")])
}

/// `operator new(std::size_t, std::align_val_t, const std::nothrow_t&)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnwmSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, _tag: *const c_void) -> *mut u8 {
    jump!(
        nothrow_aligned,
        [ours!("weir_ours_new_aligned_nothrow"), unless_ours!("_ZnwmSt11align_val_t", "weir_ours_new_aligned")],
        call_or_null = sym weir_call_or_null
    )
}

/// `operator new[](std::size_t, std::align_val_t, const std::nothrow_t&)`
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn _ZnamSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, _tag: *const c_void) -> *mut u8 {
    jump!(
        weir_ours_new_aligned_nothrow,
        [unless_ours!("_ZnamSt11align_val_t", "weir_ours_new_array_aligned")],
        call_or_null = sym weir_call_or_null
    )
}
